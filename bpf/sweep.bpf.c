// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sweep.bpf.c - frees the memory of connections that have ended.
 *
 * It is an iterator over the connections. A read by user space runs it until
 * it has written as many marks, of one byte, as were asked for; the next read
 * goes on from there. So the table is swept inside the kernel, in slices whose
 * size user space chooses, without a system call or a copy for each entry
 * (docs/adr/0005-sweep.md has the alternatives).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "rows.h"
#include "conntrack.h"
#include "persist.h"

/* A mark of either kind stands for about the same time. */
#define SWEEP_VISITED_PER_MARK 256
#define SWEEP_ENDED_PER_MARK 16

enum sweep_mark {
	SWEEP_MARK_VISITED, /* so many entries were looked at */
	SWEEP_MARK_ENDED, /* so many connections were removed */
};

/* An entry that is expired for this long, in seconds, is in use on no CPU that
 * found it alive. */
#define SWEEP_SLACK 2

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
} __attribute__((preserve_access_index));

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
} __attribute__((preserve_access_index));

/* Was the connection's endpoint removed together with its connections? */
static __always_inline bool endpoint_is_removed(const struct connection *c,
						__u8 protocol)
{
	__u32 id = c->endpoint;
	struct endpoint *ep = endpoint_find(id);

	if (!ep)
		return false;
	return ep->flags &
	       (protocol == IPPROTO_TCP ? ENDPOINT_END_TCP : ENDPOINT_END_UDP);
}

/* Ends the connection of an entry, if it is over. Returns whether it was. */
static __always_inline bool sweep_entry(const struct connection_key *key,
					struct connection *c, __u32 word)
{
	__u32 now = (__u32)bpf_jiffies64();

	if (!(word & STATE_TRAIT(CONN_RESTING)) &&
	    endpoint_is_removed(c, key->protocol))
		return connection_end(key, c, word, PORT_RESTS_FROM_NOW);
	/* most entries have been used lately, or are within the shortest
	 * timeout of all */
	if ((__s32)(now - c->seen) <= (__s32)hz ||
	    !connection_is_removable(c, key->protocol, now, SWEEP_SLACK * hz))
		return false;
	/* whoever ended the connection could not delete this entry */
	if (word & STATE_ENDED) {
		entry_delete(key, word);
		return false;
	}
	return connection_end(key, c, word, PORT_IS_FREE);
}

SEC("iter/bpf_map_elem")
int loxilb_sweep(struct bpf_iter__bpf_map_elem *ctx)
{
	struct connection_key *found = ctx->key, key;
	struct connection *c = ctx->value;
	struct seq_file *seq = ctx->meta->seq;
	struct sweep_report *report;
	__u32 zero = 0, word;
	__u8 mark;

	if (!found || !c)
		return 0;
	report = bpf_map_lookup_elem(&sweep_reports, &zero);
	if (!report)
		return 0;
	report->visited++;
	/* the iterator may show, once more, an entry of the current bucket that
	 * was just removed with its peer: another CPU may have used its memory
	 * again before or after the word was read */
	word = state_read(c);
	key = *found;
	if (sweep_entry(&key, c, word)) {
		report->ended++;
		mark = SWEEP_MARK_ENDED;
		if (!(report->ended % SWEEP_ENDED_PER_MARK))
			bpf_seq_write(seq, &mark, 1);
	}
	mark = SWEEP_MARK_VISITED;
	if (!(ctx->meta->seq_num % SWEEP_VISITED_PER_MARK))
		bpf_seq_write(seq, &mark, 1);
	return 0;
}

/* Is the client to be forgotten? Yes if it was silent for longer than its
 * service keeps it, or if its endpoint is being removed, whose row is used
 * again soon. Not if the endpoint merely takes no new connections: it may take
 * some again. */
static __always_inline bool persist_is_removable(const struct persist_key *key,
						 const struct persist_entry *e)
{
	const __u16 ended = ENDPOINT_END_TCP | ENDPOINT_END_UDP;
	__u32 now = (__u32)bpf_jiffies64(), id = e->endpoint;
	struct endpoint *ep = endpoint_find(id);

	if (!ep || ep->service != key->service || ep->flags & ended)
		return true;
	return persist_expired(e, key->service, now, SWEEP_SLACK * hz);
}

SEC("iter/bpf_map_elem")
int loxilb_sweep_persists(struct bpf_iter__bpf_map_elem *ctx)
{
	struct persist_key *found = ctx->key, key;
	struct persist_entry *e = ctx->value;
	void *table = table_find(&persists);
	__u8 zero = 0;

	if (!found || !e || !table)
		return 0;
	key = *found;
	if (persist_is_removable(&key, e))
		bpf_map_delete_elem(table, &key);
	if (!(ctx->meta->seq_num % SWEEP_VISITED_PER_MARK))
		bpf_seq_write(ctx->meta->seq, &zero, 1);
	return 0;
}

/* Removes rows of snat_usages without connections. A connection that opens at
 * that moment finds the row retired, and the client repeats its packet. */
SEC("iter/bpf_map_elem")
int loxilb_sweep_snat(struct bpf_iter__bpf_map_elem *ctx)
{
	struct snat_pair *found = ctx->key, key;
	void *usages = table_find(&snat_usages);
	struct snat_usage *u;

	if (!found || !usages)
		return 0;
	key = *found;
	u = bpf_map_lookup_elem(usages, &key);
	if (u && !u->count &&
	    !__sync_val_compare_and_swap(&u->count, 0, SNAT_RETIRED))
		bpf_map_delete_elem(usages, &key);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
