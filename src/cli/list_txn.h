/* SPDX-License-Identifier: Apache-2.0 */
/* The part of verbena list that is about transactions. */
#ifndef VB_CLI_LIST_TXN_H
#define VB_CLI_LIST_TXN_H

#include <jansson.h>

void vb_list_put_txn(void);
void vb_list_txn_json(json_t *root);

#endif
