// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * cluster.bpf.c - exchanges connections with other nodes. Loaded only by a daemon in a
 * cluster (docs/adr/0092-connection-sync.md). User space runs both programs on an empty
 * packet, like the sweep's.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "cluster/put.h"
#include "cluster/scan.h"

/* Finds connections for other nodes, in a slice of the table from the bucket whose number
 * is the packet's mark, and returns the number of the next one (scan.h). */
SEC("tc")
int loxilb_scan_copies(struct __sk_buff *ctx)
{
	return scan_slice(ctx->mark);
}

/* Inserts the first copies of copies_to_put, as many as the packet's mark (put.h). */
SEC("tc")
int loxilb_put_copies(struct __sk_buff *ctx)
{
	__u32 count = ctx->mark;

	bpf_loop(COPY_BATCH, put_next_copy, &count, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
