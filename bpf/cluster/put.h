/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * put.h - inserts copies of connections that other nodes have opened, as if they had been
 * opened here, or merges them into existing ones.
 *
 * Both sides of a merge belong to one connection if client, endpoint, translation and
 * generation agree. Then events add up, and the later times and numbers count, in any
 * order. Otherwise one of them is an earlier connection from the same client port or
 * source port, and loses (identity.h). A node that was away may have missed the end of
 * the earlier one, and packets of the later one may have used its entry before the copy
 * arrives. Late ends close connections, and are never inserted. A copy that no packet
 * has used has counted none: packets of both entries are 0.
 */
#ifndef LOXILB_PUT_H
#define LOXILB_PUT_H

#include "cluster/identity.h"
#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "conntrack/expiry.h"
#include "observe/copy.h"
#include "packet/address.h"
#include "packet/checksum.h"
#include "table/epoch.h"
#include "table/rows.h"

/* The copies to insert. Written and read by user around a run. */
struct connection_copy copies_to_put[COPY_BATCH];

/* The rows of the copy that is being inserted: one at a time. */
struct {
	struct connection_key client_key;
	struct connection_key reply_key;
	struct connection entry;
	struct sctp_path_key path_key;
	struct sctp_path path;
} put_rows;

static __always_inline __u32 put_seen(const struct connection_copy *r)
{
	return (__u32)bpf_jiffies64() - r->idle;
}

static __always_inline void put_fill_keys(const struct connection_copy *r)
{
	put_rows.client_key = (struct connection_key){
		.saddr = r->client,
		.daddr = r->vip,
		.sport = r->client_port,
		.dport = r->vip_port,
		.protocol = r->protocol,
	};
	put_rows.reply_key = (struct connection_key){
		.saddr = r->endpoint,
		.daddr = r->source,
		.sport = r->endpoint_port,
		.dport = r->source_port,
		.protocol = r->protocol,
	};
}

static __always_inline void raise_number(__u32 *number, __u32 other)
{
	if ((__s32)(other - *number) > 0)
		*number = other;
}

/* Records that a direction was used at a time, if it was not used later. */
static __always_inline void put_last_use(struct connection *c, __u32 seen)
{
	if ((__s32)(seen - c->seen) <= 0)
		return;
	hop_forget_if_silent(c, (__u32)bpf_jiffies64());
	c->seen = seen;
}

/* Records that the endpoint has acknowledged the header of the PROXY protocol, before
 * the numbers show it: otherwise they would match the client's first byte, and the next
 * segment would get the header again. */
static __always_inline void put_proxy(struct connection *c, __u32 word,
				      struct connection *reply)
{
	const __u32 states = STATE_PROXY_ACKED | STATE_PROXY_PAST;

	if ((word & states) == states || !reply)
		return;
	state_add_both(c, word, reply, state_read(reply), states);
}

/* Takes the tags of the copy if its client has restarted at another node, or if INITs were forged
 * at this one: then the association is open again. One node may have seen COOKIE ECHO, and another
 * COOKIE ACK: each knows one tag. Returns whether the tags are those of the entries. */
static __always_inline bool put_restart(const struct connection_copy *r,
					struct connection *c,
					struct connection *reply, bool later)
{
	const __u32 ends = SCTP_ENDS & ~r->flags;

	if (r->reply_ack == reply->ack ||
	    (!r->reply_ack && (!c->ack || r->ack == c->ack)))
		return true;
	/* of the same association, which may have ended meanwhile */
	if (!reply->ack && (!r->ack || r->ack == c->ack)) {
		reply->ack = r->reply_ack;
		return true;
	}
	if (!later && (reply->ack || c->ack))
		return false;
	c->ack = r->ack;
	reply->ack = r->reply_ack;
	client_change(c, &r->client, state_read(c), ends, 0);
	state_change(reply, state_read(reply), ends, 0);
	return true;
}

/* Takes the tags of an association that the copy knows (sctp/state.h), if this node knows none, if
 * the copy is of a later packet, or if only its node has seen which tags are the client's. Returns
 * false if the client has restarted since the copy. word: of the client's entry. */
static __always_inline bool put_tags(const struct connection_copy *r,
				     struct connection *c, __u32 word,
				     struct connection *reply)
{
	const bool proves = r->flags & ~word & CONN_ASSURED;
	const bool later =
		proves || r->idle < copy_idle(c, reply, (__u32)bpf_jiffies64());

	if (word & ~r->flags & CONN_ASSURED)
		return true;
	if (reply && !put_restart(r, c, reply, later))
		return false;
	if (proves || (r->ack && (!c->ack || later)))
		c->ack = r->ack;
	return true;
}

/* Lets packets by further paths find the association (sctp/paths.h), if its service has
 * several VIPs. */
static __noinline void put_path(const struct connection_copy *r)
{
	void *paths = lazy_hash_get(&sctp_paths);
	struct sctp_path_key *key = &put_rows.path_key;
	struct sctp_path *path = &put_rows.path;

	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memset(path, 0, sizeof(*path));
	key->service =
		r->service; /* Linux 6.1 takes no key from the argument */
	if (!paths || !lazy_hash_find(&sctp_vips, &key->service))
		return;
	key->sport = r->client_port;
	key->dport = r->vip_port;
	key->tag = r->ack;
	path->client = r->client;
	path->vip = r->vip;
	bpf_map_update_elem(paths, key, path, BPF_ANY);
}

/* Reports whether a copy resets a connection whose last packets have passed this node
 * alone: the other node's RSTs have missed the windows of both ends, so they go on. The
 * numbers of a late one have been compared already. */
static __always_inline bool put_reset_is_missed(const struct connection_copy *r,
						const struct connection *c,
						__u32 word,
						const struct connection *reply)
{
	__s32 client, endpoint;

	if (!reply || r->protocol != IPPROTO_TCP || r->late ||
	    !(r->flags & ~word & CONN_RESET))
		return false;
	client = c->seq_end - r->seq_end;
	endpoint = reply->seq_end - r->reply_seq_end;
	return client >= 0 && endpoint >= 0 && (client || endpoint);
}

/* Returns which FINs are acknowledged, by the numbers of both directions. */
static __always_inline __u8 put_acked(const struct connection *c, __u32 word,
				      const struct connection *reply)
{
	const __u8 fins = CONN_FIN_CLIENT | CONN_FIN_ENDPOINT;
	__u8 events = 0;

	if ((word & fins) != fins)
		return 0;
	if (reply->ack == c->seq_end)
		events |= CONN_FIN_CLIENT_ACKED;
	if (c->ack == reply->seq_end)
		events |= CONN_FIN_ENDPOINT_ACKED;
	return events;
}

/* Closes a connection whose directions pass different nodes: each node sees a FIN, and the
 * acknowledgement of the other one, which it does not know by then. The nodes that
 * packets have passed notify the others. */
static __noinline void put_close(struct connection *c, struct connection *reply)
{
	const __u32 word = state_read(c);
	const __u8 events = put_acked(c, word, reply);

	if ((word & events) == events)
		return;
	connection_record_both(c, word, reply, state_read(reply), events);
	if (entry_was_used(c, reply))
		copy_if_changed(c, word, reply, IPPROTO_TCP);
}

/* Merges a copy into its connection. */
static __always_inline int put_merge(const struct connection_copy *r,
				     struct connection *c, __u32 word,
				     struct connection *reply)
{
	const __u8 events = r->flags & ~CONN_REPLY_DIRECTION;
	const int merged = put_reset_is_missed(r, c, word, reply) ?
				   COPY_OUTRUN :
				   COPY_MERGED;

	if (r->protocol == IPPROTO_SCTP && !put_tags(r, c, word, reply))
		return COPY_OLD;
	if (r->hop & HOP_CHANGES_STREAM)
		put_proxy(c, word, reply);
	if (reply)
		word = connection_record_both(c, word, reply, state_read(reply),
					      events);
	else
		word = client_change(c, &r->client, word, 0, events);
	if (word & STATE_ENDED)
		return COPY_BUSY;
	if (events & ~word & CONN_ASSURED)
		half_open_count_of(c->endpoint, r->protocol, -1);
	if (r->protocol == IPPROTO_TCP) {
		raise_number(&c->seq_end, r->seq_end);
		raise_number(&c->ack, r->ack);
	}
	put_last_use(c, put_seen(r));
	if (!reply)
		return merged;
	if (r->protocol == IPPROTO_TCP) {
		raise_number(&reply->seq_end, r->reply_seq_end);
		raise_number(&reply->ack, r->reply_ack);
		put_close(c, reply);
	}
	put_last_use(reply, put_seen(r));
	return merged;
}

/* Handles a copy whose client's key has an entry. NONE: it no longer has. */
static __noinline int put_existing(const struct connection_copy *r,
				   struct connection *c)
{
	const __u32 word = state_read(c);
	struct connection *reply = NULL;

	if (state_is_leftover(word)) {
		entry_delete(&put_rows.client_key, word, REMOVE_COUNTS);
		return COPY_NONE;
	}
	if (word & STATE_ENDED)
		return COPY_BUSY;
	if (word & CONN_REPLY_DIRECTION)
		return COPY_CONFLICT;
	if (!(word & STATE_TRAIT(CONN_ONE_WAY))) {
		reply = connection_peer(c, r->protocol);
		if (reply && !state_is_same_generation(word, state_read(reply)))
			return COPY_BUSY;
	}
	if (copy_matches(r, c, word, reply, &put_rows.reply_key))
		return put_merge(r, c, word, reply);
	if (r->late || !copy_is_later(r, c, word, reply))
		return COPY_OLD;
	return connection_end(&put_rows.client_key, c, word, PORT_IS_FREE) ?
		       COPY_NONE :
		       COPY_BUSY;
}

/* Fills in what both entries have in common. */
static __always_inline void put_fill_entry(const struct connection_copy *r)
{
	struct connection *c = &put_rows.entry;

	__builtin_memset(c, 0, sizeof(*c));
	c->seen = put_seen(r);
	hop_forget(c, (__u32)bpf_jiffies64());
	c->endpoint = r->id;
	c->hop = r->hop & (HOP_FAMILY | HOP_TUNNELS);
	if (r->protocol == IPPROTO_UDP)
		c->hop |= r->hop & HOP_NO_XDP;
	if (r->hop & HOP_CHANGES_STREAM)
		c->hop |= HOP_PROXY_STATES; /* copy_is_complete() */
	c->traits = r->traits & (CONN_SNAT | CONN_ONE_WAY);
	c->generation = r->generation;
}

/* Counts one more connection of a source address and an endpoint. */
static __always_inline bool put_count_port(void)
{
	const struct snat_pair pair = {
		.source = put_rows.reply_key.daddr,
		.endpoint = put_rows.reply_key.saddr,
		.port = put_rows.reply_key.sport,
		.protocol = put_rows.reply_key.protocol,
	};
	const struct snat_usage none = {};
	void *usages = lazy_hash_get(&snat_usages);
	struct snat_usage *u;

	if (!usages)
		return false;
	bpf_map_update_elem(usages, &pair, &none, BPF_NOEXIST);
	u = bpf_map_lookup_elem(usages, &pair);
	if (!u)
		return false;
	if (!(__sync_fetch_and_add(&u->count, 1) & SNAT_RETIRED))
		return true;
	__sync_fetch_and_add(&u->count, (__u32)-1);
	return false;
}

static __always_inline int put_result(int err)
{
	if (!err)
		return COPY_INSERTED;
	if (err == -E2BIG)
		return COPY_FULL;
	return err == -EEXIST ? COPY_CONFLICT : COPY_BUSY;
}

/* Reports whether the connection with the key of the copy's replies is over, since another
 * node uses the source port again, or its client may not exist. old: its entry of replies. */
static __always_inline bool put_replaces(const struct connection_copy *r,
					 const struct connection *old,
					 __u32 word)
{
	const __u32 now = (__u32)bpf_jiffies64();
	const struct connection *client;

	if (connection_is_orphan(old, r->protocol) ||
	    connection_is_closed(word) || copy_is_proven(r, word) ||
	    connection_is_expired(old, r->protocol, now, 0))
		return true;
	client = connection_peer(old, r->protocol);
	return copy_is_successor(r, word, copy_idle(old, client, now),
				 entry_was_used(old, client), r->reply_seq_end,
				 old->seq_end);
}

/* Ends the connection that has the key of the copy's replies, if it is over. */
static __noinline bool put_free_reply_key(const struct connection_copy *r)
{
	const struct connection_key *key = &put_rows.reply_key;
	struct connection *old = entry_find(key);
	__u32 word;

	if (!old)
		return true;
	word = state_read(old);
	return put_replaces(r, old, word) &&
	       connection_end(key, old, word, PORT_IS_FREE);
}

/* Inserts the entry of replies. */
static __noinline int put_reply(const struct connection_copy *r)
{
	struct connection *c = &put_rows.entry;
	int err;

	c->saddr = r->vip;
	c->daddr = r->client;
	c->sport = r->vip_port;
	c->dport = r->client_port;
	c->seq_end = r->reply_seq_end;
	c->ack = r->reply_ack;
	c->flags = r->flags | CONN_REPLY_DIRECTION;
	connection_set_sums(c, &put_rows.reply_key);
	err = entry_insert(&put_rows.reply_key, c);
	if (err == -EEXIST && put_free_reply_key(r))
		err = entry_insert(&put_rows.reply_key, c);
	if (!err && c->traits & CONN_SNAT && !put_count_port()) {
		entry_remove(&put_rows.reply_key, REMOVE_WORD(state_read(c)));
		return COPY_BUSY;
	}
	return put_result(err);
}

/* Counts a connection like connection_begins(), in the state that the copy has. */
static __noinline void put_begin(const struct connection_copy *r, __u32 word)
{
	struct connection_count *n = connection_counts_find(r->id);

	if (!n)
		return;
	connection_begins(n, r->id, &r->client, r->protocol);
	if (word & CONN_ASSURED)
		half_open_count_of(r->id, r->protocol, -1);
	if (!connection_is_active(word))
		active_count(r->id, &r->client, -1);
}

/* Inserts the client's entry. */
static __noinline int put_client(const struct connection_copy *r)
{
	struct connection *c = &put_rows.entry;
	__u32 word;
	int err;

	c->saddr = r->source;
	c->daddr = r->endpoint;
	c->sport = r->source_port;
	c->dport = r->endpoint_port;
	c->seq_end = r->seq_end;
	c->ack = r->ack;
	c->flags = r->flags & ~CONN_REPLY_DIRECTION;
	if (!(c->traits & CONN_ONE_WAY))
		connection_invert_sums(c);
	word = state_read(c);
	put_begin(r, word);
	err = entry_insert(&put_rows.client_key, c);
	if (!err)
		return COPY_INSERTED;
	connection_ended(r->id, &r->client, word, r->protocol);
	if (!(c->traits & CONN_ONE_WAY))
		entry_delete(&put_rows.reply_key, word | CONN_REPLY_DIRECTION,
			     0);
	return put_result(err);
}

/* Remembers the client of a service with algorithm persist, as the node did that has opened
 * the connection: unless this node knows a later one. */
static __noinline void put_persist(const struct connection_copy *r)
{
	struct persist_entry entry = { .endpoint = r->id, .seen = put_seen(r) },
			     *old;
	struct persist_key client = { .service = r->service };
	void *table = lazy_hash_get(&persists);

	if (!table)
		return;
	copy_prefix(&client.client, &r->client, r->persist_prefix);
	old = bpf_map_lookup_elem(table, &client);
	if (!old || (__s32)(entry.seen - old->seen) > 0)
		bpf_map_update_elem(table, &client, &entry, BPF_ANY);
}

/* Inserts a copy, or merges it. Global (verifier: globals). */
__noinline int put_copy(struct connection_copy *r)
{
	const struct endpoint *ep;
	struct connection *c;
	int result;

	if (!r) /* verifier: null */
		return COPY_NONE;
	ep = endpoint_find(r->id);
	if (!ep || ep->service != r->service || !(ep->flags & ENDPOINT_IN_USE))
		return COPY_UNKNOWN;
	put_fill_keys(r);
	if (r->protocol == IPPROTO_SCTP && r->flags & CONN_ASSURED && !r->late)
		put_path(r);
	c = entry_find(&put_rows.client_key);
	result = c ? put_existing(r, c) : COPY_NONE;
	if (result != COPY_NONE)
		return result;
	if (r->late)
		return COPY_OLD;
	put_fill_entry(r);
	if (!(r->traits & CONN_ONE_WAY)) {
		result = put_reply(r);
		if (result != COPY_INSERTED)
			return result;
	}
	result = put_client(r);
	if (result == COPY_INSERTED && r->persist_prefix)
		put_persist(r);
	return result;
}

static long put_next_copy(__u32 i, __u32 *count)
{
	if (i >= *count || i >= COPY_BATCH)
		return 1;
	asm volatile("" : "+r"(i)); /* verifier: bounds */
	i &= COPY_BATCH - 1;
	copies_to_put[i].result = put_copy(&copies_to_put[i]);
	return 0;
}

#endif
