/* SPDX-License-Identifier: Apache-2.0 */
/* SmallBank's kinds of transactions and H-Store's mix of them, for its load and its lock trace. */
#ifndef VB_WORKLOAD_SMALLBANK_H
#define VB_WORKLOAD_SMALLBANK_H

enum vb_smallbank_type {
	VB_SB_AMALGAMATE,
	VB_SB_BALANCE,
	VB_SB_DEPOSIT_CHECKING,
	VB_SB_SEND_PAYMENT,
	VB_SB_TRANSACT_SAVINGS,
	VB_SB_WRITE_CHECK,
	VB_SB_TYPES
};
extern const char *const vb_smallbank_types[VB_SB_TYPES];
extern const unsigned vb_smallbank_percent[VB_SB_TYPES];

#endif
