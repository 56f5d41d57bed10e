/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the memory of a node began: where servers may begin again (caps.servers), the calendar's nanoseconds at the
 * time when the server that has it began empty, in the word at this offset of each of its nodes, which no region has.
 * Of two servers of one name the later one has the larger number (fabric/net/later.c), as long as machines' calendars
 * are not wrong by more than what lies between the two.
 */
#ifndef VB_FABRIC_BORN_H
#define VB_FABRIC_BORN_H

#define VB_BORN_AT 8u

#endif
