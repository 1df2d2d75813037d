/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * paths.h - further paths of an association: the client's other addresses, and the service's
 * other VIPs.
 *
 * The two entries of an association belong to its first path. INIT ACK lists all VIPs
 * of the service, so the client also sends to these, from any of its addresses. Such a
 * packet has no entry. Its verification tag, which only the two sides know, finds the
 * association, so no path must be known in advance. The client proves that it receives at
 * its address (proof.h). The endpoint sees one path.
 *
 * Answers take the path of the client's last packet, so they leave a path that has failed as
 * soon as the client does. HEARTBEATs probe a path, and do not move answers to it, unless the
 * present one is silent; but HEARTBEAT ACK returns by the path of HEARTBEAT. An association
 * that has used a second path has HOP_PATHS in both entries; others pay nothing.
 */
#ifndef LOXILB_SCTP_PATHS_H
#define LOXILB_SCTP_PATHS_H

#include "conntrack/conntrack.h"
#include "packet/checksum.h"
#include "packet/packet.h"
#include "protocol/protocol.h"
#include "protocol/sctp_addresses.h"
#include "service/service.h"
#include "table/epoch.h"
#include "table/rows.h"
#include "table/state.h"

/* A path whose last packet is older may have failed. */
#define SCTP_PATH_SILENT (3 * hz)

/* Reports whether the sender of a packet knows the tag of its direction. */
static __always_inline bool sctp_has_tag(const struct packet *p,
					 const struct connection *c)
{
	return p->ack && p->ack == c->ack;
}

/* Reports whether a packet ends its association, from whatever address. */
static __always_inline bool sctp_is_last(const struct packet *p)
{
	return p->chunk == SCTP_ABORT || p->chunk == SCTP_SHUTDOWN_COMPLETE;
}

#if ONLY_SCTP
/* How many packets with wrong tags a CPU takes per second before it no longer confirms right
 * ones to unproven addresses. A tag has 32 bits, and any association of the service will do for a
 * sender that guesses: 10,000 answers per second (answer.h) would find one of 1,000 in minutes. */
#define SCTP_WRONG_TAGS 100

struct sctp_scratch {
	struct sctp_path_key key;
	struct sctp_path path;
	struct connection_key
		arrived; /* the packet's tuple, on a further path */
	struct connection entry; /* by which the packet leaves */
	__u32 wrong_since; /* jiffies; outlives the packet */
	__u32 wrong_tags;
};

_Static_assert(sizeof(struct sctp_scratch) <= sizeof(struct packet_scratch),
	       "it has room");

static __always_inline struct sctp_scratch *sctp_scratch_get(void)
{
	__u32 use = SCRATCH_SCTP;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

static __always_inline bool sctp_are_tags_guessed(const struct sctp_scratch *s,
						  __u32 now)
{
	return s->wrong_tags >= SCTP_WRONG_TAGS && now - s->wrong_since < hz;
}

/* Returns the VIPs of a service with several, or NULL. */
static __always_inline const struct sctp_vip_list *sctp_vips_of(__u32 service)
{
	return lazy_hash_find(&sctp_vips, &service);
}

/* Reports whether a row has an address here. One of IPv6 may end with zeros. */
static __always_inline bool sctp_is_address_set(const struct ip_addr *a)
{
	return a->word[0] | a->word[2];
}

/* Makes the key by which a tag finds an association. */
static __always_inline void sctp_key_by_tag(struct sctp_path_key *key,
					    __be16 sport, __be16 dport,
					    __u32 tag, __u32 service)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->sport = sport;
	key->dport = dport;
	key->tag = tag;
	key->service = service;
}

/* Makes the key of the present path of an association, by its first one. */
static __always_inline void sctp_key_of_present(struct sctp_path_key *key,
						const struct ip_addr *client,
						const struct ip_addr *vip,
						__be16 sport, __be16 dport)
{
	key->client = *client;
	key->vip = *vip;
	key->sport = sport;
	key->dport = dport;
	key->tag = 0;
	key->service = 0;
	key->pad = 0;
}

static __always_inline bool sctp_same_path(const struct ip_addr *client,
					   const struct ip_addr *vip,
					   const struct ip_addr *other_client,
					   const struct ip_addr *other_vip)
{
	return same_addr(client, other_client) && same_addr(vip, other_vip);
}

/* Records the client's tag of an association, once COOKIE ECHO or COOKIE ACK has shown that it
 * counts; or 0: it is unknown. */
static __noinline void sctp_record_tag(const struct connection *c,
				       const struct connection *reply)
{
	const struct endpoint *ep = endpoint_find(c->endpoint);
	struct sctp_scratch *s = sctp_scratch_get();
	void *paths = lazy_hash_get(&sctp_paths);

	if (!s || !ep || !paths || !sctp_vips_of(ep->service))
		return;
	sctp_key_by_tag(&s->key, reply->dport, reply->sport, c->ack,
			ep->service);
	__builtin_memset(&s->path, 0, sizeof(s->path));
	s->path.client = reply->daddr;
	s->path.vip = reply->saddr;
	bpf_map_update_elem(paths, &s->key, &s->path, BPF_ANY);
	/* an earlier association from this port may have left its present path */
	sctp_key_of_present(&s->key, &reply->daddr, &reply->saddr, reply->dport,
			    reply->sport);
	bpf_map_delete_elem(paths, &s->key);
}

/* Returns the first path of the association of a service that a packet's tag belongs to, whose
 * key is then s->key; or NULL, and counts a wrong tag. may_be_right: do not count it. */
static __noinline const struct sctp_path *
sctp_find_by_tag(const struct packet *p, struct sctp_scratch *s, __u32 service,
		 bool may_be_right)
{
	const struct sctp_path *first;

	sctp_key_by_tag(&s->key, p->tuple.sport, p->tuple.dport, p->ack,
			service);
	first = lazy_hash_find(&sctp_paths, &s->key);
	if (first)
		return first;
	if (may_be_right || !sctp_vips_of(service))
		return NULL;
	if (p->now - s->wrong_since >= hz) {
		s->wrong_since = p->now;
		s->wrong_tags = 0;
	}
	s->wrong_tags++;
	return NULL;
}

/* Lets a packet look as if it came by the first path of its association. */
static __always_inline void sctp_enter_path(struct packet *p)
{
	const struct sctp_scratch *s = sctp_scratch_get();

	if (!s)
		return;
	p->tuple.saddr = s->path.client;
	p->tuple.daddr = s->path.vip;
}

/* Undoes it: the association is gone. */
static __always_inline void sctp_leave_path(struct packet *p)
{
	const struct sctp_scratch *s = sctp_scratch_get();

	if (s)
		p->tuple = s->arrived;
}

/* Reports whether a packet without association may belong to one whose tag is unknown
 * (sctp/state.h), so ABORT would end it: of this machine, or of the endpoint of a half-open entry
 * whose INIT was forged. */
static __noinline bool sctp_may_be_of_unknown(struct packet *p,
					      struct sctp_scratch *s)
{
	const struct sctp_path *first;
	const struct connection *c;

	s->key.tag = 0;
	first = lazy_hash_find(&sctp_paths, &s->key);
	if (!first)
		return false;
	s->arrived = p->tuple;
	s->path = *first;
	sctp_enter_path(p);
	c = entry_find(&p->tuple);
	sctp_leave_path(p);
	return c && !c->ack && state_read(c) & CONN_ASSURED;
}

enum sctp_found {
	SCTP_FOUND_NONE,
	SCTP_FOUND_ASSOCIATION,
	SCTP_FOUND_UNKNOWN_TAG,
};

/* Finds the association of a client's packet on a path without entry. sctp_enter_path()
 * follows. Returns an enum sctp_found. Global (verifier: globals). */
__noinline int sctp_find_association(ctx_t *ctx, struct packet *p)
{
	struct opening *o = opening_get();
	struct sctp_scratch *s = sctp_scratch_get();
	const struct sctp_path *first;

	if (!p || !o || !s) /* verifier: null */
		return SCTP_FOUND_NONE;
	if (!p->ack || p->chunk == SCTP_INIT || p->fault || p->reflected ||
	    !lazy_hash_get(&sctp_paths) ||
	    !service_copy(p, ctx_mark(ctx), &o->service))
		return SCTP_FOUND_NONE;
	first = sctp_find_by_tag(p, s, o->service.id, false);
	if (!first)
		return sctp_may_be_of_unknown(p, s) ? SCTP_FOUND_UNKNOWN_TAG :
						      SCTP_FOUND_NONE;
	s->arrived = p->tuple;
	s->path = *first;
	return SCTP_FOUND_ASSOCIATION;
}

/* Reports whether a packet has the tag of another association than a client's entry. Anyone can
 * forge the INIT that opens a half-open entry, from a client's address to another VIP, and the
 * entry of an association remains when its client restarts by another path: in both cases, the
 * client's association must have that path. */
static __noinline bool sctp_is_of_another(const struct packet *p,
					  const struct connection *c,
					  __u32 word)
{
	struct sctp_scratch *s = sctp_scratch_get();
	const struct sctp_path *first;
	const struct endpoint *ep;

	if (!s || word & (CONN_REPLY_DIRECTION | STATE_TRAIT(CONN_ONE_WAY)) ||
	    !p->ack || p->reflected || p->chunk == SCTP_COOKIE_ECHO)
		return false;
	ep = endpoint_find(c->endpoint);
	if (!ep || !sctp_vips_of(ep->service))
		return false;
	if (!(word & CONN_ASSURED))
		return true;
	first = sctp_find_by_tag(p, s, ep->service, !c->ack);
	return first && !sctp_same_path(&first->client, &first->vip,
					&p->tuple.saddr, &p->tuple.daddr);
}

/* Marks both entries: packets in either direction may take another path. */
static __always_inline void sctp_mark_paths(struct connection *c)
{
	const __u32 bit = (__u32)HOP_PATHS << STATE_HOP_SHIFT;
	struct connection *peer;
	__u32 word = state_read(c);

	if (word & bit)
		return;
	peer = connection_peer(c, IPPROTO_SCTP);
	if (!peer || !state_is_same_generation(word, state_read(peer)))
		return;
	state_change(peer, state_read(peer), 0, bit);
	state_change(c, word, 0, bit);
}

/* Fills in s->path after a packet by the path s->arrived. Returns false if nothing but the
 * time changes. beat: it only probes the path. */
static __always_inline bool sctp_path_changes(struct sctp_scratch *s,
					      struct sctp_path *present,
					      __u32 now, bool beat)
{
	const struct ip_addr *client = &s->arrived.saddr;
	const struct ip_addr *vip = &s->arrived.daddr;
	bool is_present =
		sctp_same_path(client, vip, &present->client, &present->vip);

	if (is_present)
		present->seen = now;
	if (is_present &&
	    (!beat || sctp_same_path(client, vip, &present->beat_client,
				     &present->beat_vip)))
		return false;
	s->path = *present;
	s->path.beat_client = *client;
	s->path.beat_vip = *vip;
	/* another CPU's packet may be a jiffy later */
	if (beat && (__s32)(now - present->seen) < (__s32)SCTP_PATH_SILENT)
		return true;
	s->path.client = *client;
	s->path.vip = *vip;
	s->path.seen = now;
	return true;
}

/* Records by which path a client's packet has come: s->arrived. Of a forged packet,
 * nothing. */
static __noinline void sctp_record_path(const struct packet *p,
					struct connection *c)
{
	struct sctp_scratch *s = sctp_scratch_get();
	void *paths = lazy_hash_get(&sctp_paths);
	struct sctp_path *present;

	if (!s || !paths || !sctp_has_tag(p, c) || sctp_is_last(p))
		return;
	sctp_key_of_present(&s->key, &p->tuple.saddr, &p->tuple.daddr,
			    p->tuple.sport, p->tuple.dport);
	present = bpf_map_lookup_elem(paths, &s->key);
	if (!present) {
		__builtin_memset(&s->path, 0, sizeof(s->path));
		s->path.client = s->path.beat_client = p->tuple.saddr;
		s->path.vip = s->path.beat_vip = p->tuple.daddr;
		s->path.seen = p->now;
		bpf_map_update_elem(paths, &s->key, &s->path, BPF_ANY);
		present = bpf_map_lookup_elem(paths, &s->key);
	}
	if (present &&
	    sctp_path_changes(s, present, p->now, p->seq_end == SCTP_HEARTBEAT))
		bpf_map_update_elem(paths, &s->key, &s->path, BPF_ANY);
	sctp_mark_paths(c);
}

/* Returns the entry by which a client's packet leaves that came by a further path. */
static __always_inline struct connection *
sctp_entry_of_packet(struct sctp_scratch *s, const struct connection *c)
{
	s->entry = *c;
	s->entry.hop &= ~HOP_PATHS;
	connection_set_sums(&s->entry, &s->arrived);
	return &s->entry;
}

/* Returns the entry by which an answer leaves. NULL: by its own, on the first path. */
static __always_inline struct connection *
sctp_entry_of_answer(struct sctp_scratch *s, const struct packet *p,
		     const struct connection *c)
{
	bool beats = p->seq_end == SCTP_HEARTBEAT_ACK;
	const struct ip_addr *client, *vip;
	const struct sctp_path *path;

	sctp_key_of_present(&s->key, &c->daddr, &c->saddr, c->dport, c->sport);
	path = lazy_hash_find(&sctp_paths, &s->key);
	if (!path)
		return NULL;
	client = beats ? &path->beat_client : &path->client;
	vip = beats ? &path->beat_vip : &path->vip;
	if (sctp_same_path(client, vip, &c->daddr, &c->saddr))
		return NULL;
	s->entry = *c;
	s->entry.hop &= ~HOP_PATHS;
	s->entry.saddr = *vip;
	s->entry.daddr = *client;
	connection_set_sums(&s->entry, &p->tuple);
	hop_forget(&s->entry, p->now);
	return &s->entry;
}

/* Returns the entry by which a packet leaves. by_path: it came by a further path. */
static __noinline struct connection *
sctp_outgoing_entry(const struct packet *p, struct connection *c, bool by_path)
{
	struct sctp_scratch *s = sctp_scratch_get();
	struct connection *e = NULL;

	if (!s)
		return c;
	if (state_read(c) & CONN_REPLY_DIRECTION) {
		/* otherwise it answers the INIT of a client that restarts by the first path */
		if (sctp_has_tag(p, c) || p->reflected)
			e = sctp_entry_of_answer(s, p, c);
		return e ? e : c;
	}
	if (!by_path)
		s->arrived = p->tuple;
	sctp_record_path(p, c);
	return by_path ? sctp_entry_of_packet(s, c) : c;
}

#else
static __always_inline bool sctp_is_of_another(const struct packet *p,
					       const struct connection *c,
					       __u32 word)
{
	return false;
}

static __always_inline void sctp_record_tag(const struct connection *c,
					    const struct connection *reply)
{
}
#endif

#endif
