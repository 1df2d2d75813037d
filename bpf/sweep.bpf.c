// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sweep.bpf.c - frees the rows of connections that have ended.
 *
 * User space runs it for one slice of the table after another. So the table is swept
 * inside the kernel, without a system call or a copy for each entry, and nothing waits
 * for longer than a slice takes (docs/adr/0069-expiry.md has the alternatives).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "conntrack/expiry.h"
#include "conntrack/find.h"
#include "conntrack/reclaim.h"
#include "open/judge.h"
#include "service/persist.h"
#include "sweep/bloom_sweep.h"
#include "sweep/ends.h"
#include "sweep/gather.h"
#include "sweep/timer.h"
#include "sweep/walk.h"
#include "table/grow.h"
#include "table/rows.h"

/* A slice takes a millisecond or two: at most this many buckets, or this many ended
 * connections. */
#define SWEEP_SLICE_BUCKETS 128
#define SWEEP_SLICE_ENDED 256

/* How many keys of a hash table user space passes at most at once (sweptKeys). */
#define SWEPT_KEYS 64

/* How many groups are moved at a time, each in 5 to 50 us. */
#define GROW_SLICE 32

/* Ends the connection of an entry if it is over. Returns whether it was. */
static __always_inline bool sweep_entry(const struct connection_key *key,
					struct connection *c, __u32 word)
{
	__u32 now = (__u32)bpf_jiffies64();
	bool removable;

	/* most entries were used recently, within the shortest timeout of all */
	if ((__s32)(now - c->seen) <= (__s32)hz)
		return false;
	removable = connection_is_removable(c, key->protocol, now, SWEEP_SLACK);
	/* before an entry's source port leaves quarantine, the entry is expired */
	if (!removable && !(word & STATE_TRAIT(CONN_SNAT)))
		return false;
	if (idle_end_applies(key, word) &&
	    (removable ||
	     connection_is_expired(c, IPPROTO_TCP, now, SWEEP_SLACK)) &&
	    idle_end(key, c, word, removable))
		return false;
	return removable && entry_free_expired(key, c, word);
}

/* Expires the connection of a row of a group. Returns 1 if a connection was ended.
 * Global (verifier: globals). */
__noinline int sweep_row(struct table_row *row, __u32 group)
{
	struct connection_key key;

	if (!row || !(row->status & ROW_LIVE))
		return 0;
	key = row->key; /* another connection may reuse the row once the entry is removed */
	if (sweep_entry(&key, &row->connection, state_read(&row->connection)))
		return 1;
	location_record_entry(&row->connection, group);
	key_mark_away(&key, row_placement(row));
	bloom_add_to_next(&key);
	return 0;
}

struct sweep_slice {
	__u32 bucket; /* the next one, counted through all groups */
	__u32 visited;
	__u32 ended;
};

/* Begins or ends a pass through the table: the whole pass uses the pressure at its
 * beginning. Otherwise the first groups would be emptied until the pressure is over,
 * while others fill. */
static __always_inline void sweep_pass(bool begins)
{
	struct table_state *t = table_state_get();

	t->entries_swept = begins ? t->entries : 0;
	if (begins)
		t->was_swept = t->is_swept;
	t->is_swept = !begins;
}

/* Reports whether the pass before this one has visited all buckets, and so marked those
 * whose keys are away. */
static __always_inline bool sweep_knows_away(void)
{
	return table_state_get()->was_swept;
}

static __always_inline struct table_bucket *
sweep_next(const struct sweep_slice *s)
{
	return bucket_get(s->bucket / BUCKETS_PER_GROUP,
			  s->bucket % BUCKETS_PER_GROUP);
}

static long sweep_bucket(__u32 n, struct sweep_slice *s)
{
	struct table_bucket *b = sweep_next(s);
	struct table_row *row;

	if (!b || s->ended >= SWEEP_SLICE_ENDED)
		return 1;
	s->bucket++;
	if (sweep_knows_away())
		bucket_forget_away(b);
	NO_UNROLL
	for (__u32 i = 0; i < ROWS_PER_BUCKET; i++) {
		row = bucket_has(b, i) ? bucket_row(b, i) : NULL;
		if (!row)
			continue;
		s->visited++;
		s->ended += sweep_row(row, (s->bucket - 1) / BUCKETS_PER_GROUP);
	}
	return 0;
}

/* The mark that starts the timer: no bucket has this number. The timer has no program of
 * its own, since a start would verify the code that both share twice. */
#define SWEEP_START_TIMER 0xffffffffU

/* Sweeps a slice of the table, from the bucket whose number is the packet's mark, and
 * returns the number of the next bucket. Another mark starts the timer that frees
 * expired connections while user space does not sweep (timer.h). User space runs it on
 * an empty packet. */
SEC("tc")
int loxilb_sweep(struct __sk_buff *ctx)
{
	struct sweep_slice s = { .bucket = ctx->mark };
	struct sweep_report *report;
	__u32 zero = 0;

	if (s.bucket == SWEEP_START_TIMER)
		return timer_begin();
	if (!s.bucket)
		sweep_pass(true);
	bpf_loop(SWEEP_SLICE_BUCKETS, sweep_bucket, &s, 0);
	if (!sweep_next(&s))
		sweep_pass(false);
	report = bpf_map_lookup_elem(&sweep_reports, &zero);
	if (report) {
		report->visited += s.visited;
		report->ended += s.ended;
	}
	return s.bucket;
}

/* Ends connections of endpoints in ending_endpoints in cb[0] buckets of the table, from
 * the bucket whose number is the packet's mark, and returns the number of the next
 * bucket (walk.h). */
SEC("tc")
int loxilb_walk(struct __sk_buff *ctx)
{
	return walk_slice(ctx->mark, ctx->cb[0]);
}

/* Finds the entries that a listing wants, in a slice of the table from the row whose
 * number is the packet's mark, and returns the number of the next row (find.h). */
SEC("tc")
int loxilb_find(struct __sk_buff *ctx)
{
	return find_slice(ctx->mark);
}

/* Judges the sampled connections (judge.h). */
SEC("tc")
int loxilb_judge(struct __sk_buff *ctx)
{
	bpf_loop(SAMPLES, judge_sample_at, NULL, 0);
	return 0;
}

/* Ends silently the connection of the entry whose key follows an Ethernet header, if
 * it is the intended one (ends.h). Returns whether it has ended it. */
SEC("tc")
int loxilb_end(struct __sk_buff *ctx)
{
	const struct end_target m = end_target_read(ctx);
	struct connection_key key;
	struct connection *c;
	__u32 word;

	if (bpf_skb_load_bytes(ctx, ETH_HLEN, &key, sizeof(key)))
		return 0;
	c = entry_find(&key);
	if (!c)
		return 0;
	word = state_read(c);
	return is_end_target(&m, c, word) &&
	       connection_end_by_reply(&key, c, word, PORT_RESTS_FROM_NOW);
}

/* Sends a RST or ABORT that user space has made in the name of one end of a connection,
 * with its addresses and ports (ends.h): to the interface whose number is the packet's
 * mark, as if it arrived there, if the connection is the intended one. Without a
 * mark, only returns that interface, and writes the tag of an ABORT. */
SEC("tc")
int loxilb_reset(struct __sk_buff *ctx)
{
	const struct end_target m = end_target_read(ctx);
	__u32 ifindex = ctx->mark, number;
	struct connection_key key;
	__u8 flags = 0;
	bool sctp;

	if (!reset_key(ctx, &key) || !reset_number(&key, &m, &number, &flags))
		return RESET_NOT;
	sctp = key.protocol == IPPROTO_SCTP;
	if (!ifindex)
		return sctp && !abort_write_tag(ctx, number, flags) ?
			       RESET_NOT :
			       reset_arrives(ctx, &key);
	ctx->mark = 0;
	ctx->cb[0] = 0;
	ctx->cb[1] = 0;
	ctx->cb[2] = 0;
	if (!(sctp ? abort_has_tag(ctx, number, flags) :
		     reset_write(ctx, number)) ||
	    bpf_clone_redirect(ctx, ifindex, BPF_F_INGRESS))
		return RESET_NOT;
	return RESET_SENT;
}

static long grow_once(__u32 n, __u32 *moved)
{
	if (!group_move_next())
		return 1;
	++*moved;
	return 0;
}

/* Grows the table by a slice of groups, to the number of groups in the packet's mark,
 * and returns how many it has moved: none at first, when it announces the growth.
 * User space runs it on an empty packet until the table has that size, and waits a
 * little when none was moved. */
SEC("tc")
int loxilb_grow(struct __sk_buff *ctx)
{
	struct table_state *t = table_state_get();
	__u32 moved = 0, groups;

	groups = size_groups(t->size);
	if (size_goal(t->size) == groups && ctx->mark > groups) {
		t->size = size_pack(groups, ctx->mark, groups);
		return 0; /* lookups that began before the announcement would not see a move */
	}
	bpf_loop(GROW_SLICE, grow_once, &moved, 0);
	return moved;
}

/* Reports whether the client's record is to be removed: if it was silent for longer
 * than its service keeps it, or if its endpoint is being removed, whose row is reused
 * soon. An endpoint that only refuses new connections is no reason: it may accept them
 * again. */
static __always_inline bool persist_is_removable(const struct persist_key *key,
						 const struct persist_entry *e)
{
	__u32 now = (__u32)bpf_jiffies64(), id = e->endpoint;
	struct endpoint *ep = endpoint_find(id);

	if (!ep || ep->service != key->service || ep->flags & ENDPOINT_REMOVED)
		return true;
	return persist_expired(e, key->service, now, SWEEP_SLACK);
}

/* Reads key n of those that user space passes. The keys follow an Ethernet header; the
 * caller has compared n with their number, the packet's mark. An iterator of the map would
 * need no keys, but some kernels refuse to load one (docs/adr/0069-expiry.md). */
static __always_inline bool sweep_read_key(struct __sk_buff *ctx, __u32 n,
					   void *key, __u32 size)
{
	return !bpf_skb_load_bytes(ctx, ETH_HLEN + n * size, key, size);
}

/* Removes the client with key n if its record is no longer needed. Returns whether it has.
 * Global (verifier: globals). */
__noinline bool sweep_persist(struct __sk_buff *ctx, __u32 n)
{
	void *table = lazy_hash_get(&persists);
	struct persist_entry *e;
	struct persist_key key;

	if (!table || !sweep_read_key(ctx, n, &key, sizeof(key)))
		return false;
	e = bpf_map_lookup_elem(table, &key);
	return e && persist_is_removable(&key, e) &&
	       !bpf_map_delete_elem(table, &key);
}

/* Of the keys that user space passes, removes those from persists whose records are no
 * longer needed. Returns how many it has removed: the kernel frees all rows that were
 * removed within a grace period at once, so user space pauses in between. */
SEC("tc")
int loxilb_sweep_persists(struct __sk_buff *ctx)
{
	int removed = 0;

	NO_UNROLL
	for (__u32 n = 0; n < SWEPT_KEYS && n < ctx->mark; n++)
		removed += sweep_persist(ctx, n);
	return removed;
}

/* Of the keys that user space passes, removes those from snat_usages whose rows count no
 * connection. Returns how many it has removed. */
SEC("tc")
int loxilb_sweep_snat(struct __sk_buff *ctx)
{
	void *usages = lazy_hash_get(&snat_usages);
	struct snat_usage *u;
	struct snat_pair key;
	int removed = 0;

	if (!usages)
		return 0;
	NO_UNROLL
	for (__u32 n = 0; n < SWEPT_KEYS && n < ctx->mark; n++) {
		if (!sweep_read_key(ctx, n, &key, sizeof(key)))
			break;
		u = bpf_map_lookup_elem(usages, &key);
		if (!u || u->count)
			continue;
		snat_usage_retire(usages, &key, u);
		removed++;
	}
	return removed;
}

/* Gathers the active connections of the endpoint of the mark. */
SEC("tc")
int loxilb_gather(struct __sk_buff *ctx)
{
	gather_endpoint(ctx->mark);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
