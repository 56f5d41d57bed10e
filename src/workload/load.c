/* SPDX-License-Identifier: Apache-2.0 */
/* What workloads of transactions have in common; see load.h. */
#define VB_LOG_ROOM "load"
#include "workload/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "txn/db.h"
#include "workload/loads.h"

#define CLIENT_STREAM 0x6c6f616400000000ull

const struct vb_load_ops *const vb_loads[] = {
	&vb_load_ycsb, &vb_load_ycsb_e, &vb_load_smallbank,
	&vb_load_bank, &vb_load_tatp,   &vb_load_tpcc,
	NULL,
};

const struct vb_load_ops *vb_load_find(const char *name)
{
	for (const struct vb_load_ops *const *l = vb_loads; *l != NULL; l++)
		if (strcmp((*l)->name, name) == 0)
			return *l;
	return NULL;
}

int vb_load_init(struct vb_load *l, const struct vb_load_ops *ops, const void *options,
		 uint16_t nodes, uint64_t seed)
{
	int err;

	*l = (struct vb_load){
		.ops = ops, .options = options, .nodes = nodes, .seed = seed, .drawn_by = seed};
	err = ops->init(l);
	if (err)
		vb_load_close(l);
	return err;
}

void vb_load_close(struct vb_load *l)
{
	free(l->own);
	l->own = NULL;
	vb_load_unshare(l);
}

void vb_load_db_params(const struct vb_load *l, struct vb_db_params *p)
{
	p->items_max = l->items;
	p->bytes_max = l->bytes;
	p->record_bytes_max = l->record_bytes_max;
}

uint64_t vb_load_node_bytes(const struct vb_load *l, const struct vb_db_params *p)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < l->n_tables; i++)
		bytes += vb_table_node_bytes(p, &l->params[i], l->nodes);
	return bytes;
}

int vb_load_open(struct vb_load *l, struct vb_db *db)
{
	int err = 0;

	for (unsigned i = 0; i < l->n_tables && err == 0; i++)
		err = vb_table_open(db, &l->params[i], &l->table[i]);
	return err;
}

int vb_load_client_open(const struct vb_load *l, uint16_t node, unsigned number,
			struct vb_load_client *c)
{
	*c = (struct vb_load_client){.load = l, .node = node, .number = number};
	vb_rng_seed(&c->rng, l->drawn_by, CLIENT_STREAM + number);
	c->key = calloc(l->items, sizeof(*c->key));
	c->record = calloc(1, l->record_bytes_max + 8);
	c->own = calloc(1, l->ops->client_bytes + 8);
	if (c->key != NULL && c->record != NULL && c->own != NULL)
		return 0;
	vb_load_client_close(c);
	return vb_fail(-ENOMEM, "no memory for a client");
}

void vb_load_client_close(struct vb_load_client *c)
{
	free(c->key);
	free(c->record);
	free(c->own);
	c->key = NULL;
	c->record = NULL;
	c->own = NULL;
}
