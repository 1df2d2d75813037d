/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ends.h - notifies both ends of a connection that it is over.
 *
 * Each end gets a RST, or an ABORT of SCTP, that appears to come from the other one. It
 * enters by the hook of an interface, like a packet of that end: so it is translated, routed
 * and counted like any packet, and both entries record it (docs/adr/0035-open-connections.md).
 */
#ifndef LOXILB_ENDS_H
#define LOXILB_ENDS_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include "conntrack/conntrack.h"
#include "path/fib.h"
#include "protocol/tcp.h"
#include "sweep/abort.h"
#include "table/bucket.h"

/* struct found_end. Written by the sweep; read by user after each slice. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} idle_ends SEC(".maps");

/* 0 -> their number. Written by the sweep; read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct idle_report);
} idle_reports SEC(".maps");

static __always_inline bool numbers_are_known(const struct connection *c,
					      const struct connection *peer)
{
	return c->seq_end - peer->ack < TCP_MAX_AHEAD &&
	       peer->seq_end - c->ack < TCP_MAX_AHEAD;
}

/* Reports whether the numbers, or tags, of both directions are known. They are not for
 * a connection that is answered directly or half-open, or that has unseen gaps. */
static __always_inline bool
ends_are_known(const struct connection_key *key, const struct connection *c,
	       __u32 word, const struct connection *peer, __u32 peer_word)
{
	const __u32 both = CONN_REPLIED | CONN_ASSURED;

	return (word & both) == both && states_are_of_pair(word, peer_word) &&
	       connection_is_pair(key, word, peer, peer_word) &&
	       (key->protocol == IPPROTO_SCTP ? abort_tag_is_known(c, peer) :
						numbers_are_known(c, peer));
}

/* Reports whether both ends of one more connection may be notified. If not, and it
 * ends now, it is counted. */
static __always_inline bool idle_end_allowed(bool ends)
{
	struct idle_report *r;
	__u32 zero = 0;
	bool allowed;

	r = bpf_map_lookup_elem(&idle_reports, &zero);
	if (!r)
		return false;
	allowed = bucket_take(&r->more, idle_rst_rate, idle_rst_rate,
			      (__u32)bpf_jiffies64());
	if (allowed)
		r->told++;
	else if (ends)
		r->untold++;
	return allowed;
}

/* Reports whether both ends of this entry's connection may be notified, if it is
 * expired. */
static __always_inline bool idle_end_applies(const struct connection_key *key,
					     __u32 word)
{
	const __u8 fins = CONN_FIN_CLIENT | CONN_FIN_ENDPOINT;

	return idle_rst_rate && key->protocol == IPPROTO_TCP &&
	       (word & CONN_ASSURED) && (word & fins) != fins &&
	       !(word & (CONN_RESET | STATE_TRAIT(CONN_SINGLE_ENTRY)));
}

/* Hands over an established or half-closed connection that is expired, so user space
 * sends RSTs to both ends, and keeps it meanwhile as a closed one: so the RSTs, and
 * the answers to them, find it. Returns false if the ends are not notified. The end
 * is recorded before any further packet: nothing revives an expired connection. ends:
 * it ends now in any case. */
static __noinline bool idle_end(const struct connection_key *key,
				struct connection *c, __u32 word, bool ends)
{
	__u32 peer_word, now = (__u32)bpf_jiffies64();
	struct connection_key other;
	struct connection *peer;
	struct found_end *e;

	connection_reverse(&other, c, IPPROTO_TCP);
	peer = entry_find(&other);
	if (!peer)
		return false;
	peer_word = state_read(peer);
	if (!ends_are_known(key, c, word, peer, peer_word) ||
	    !idle_end_allowed(ends))
		return false;
	e = bpf_ringbuf_reserve(&idle_ends, sizeof(*e), 0);
	if (!e)
		return false;
	e->client = word & CONN_REPLY_DIRECTION ? other : *key;
	e->reply = word & CONN_REPLY_DIRECTION ? *key : other;
	e->endpoint = c->endpoint;
	e->word = word | CONN_RESET;
	word = connection_record(c, word, peer, peer_word, CONN_RESET);
	if (word & STATE_ENDED) { /* a packet has ended it meanwhile */
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return true;
	}
	c->seen = now;
	peer->seen = now;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return true;
}

/* Results of loxilb_reset() other than an interface. */
enum reset_result {
	RESET_NOT = 0, /* there is no such connection, or its numbers are not
			* known */
	RESET_SENT = 1,
	RESET_ANYWHERE = -1, /* it may arrive at any interface */
};

/* Reads the key of a RST or ABORT that user space has made, without options. */
static __always_inline bool reset_key(struct __sk_buff *ctx,
				      struct connection_key *key)
{
	const __u32 addresses4 =
			    ETH_HLEN + __builtin_offsetof(struct iphdr, saddr),
		    addresses6 = ETH_HLEN +
				 __builtin_offsetof(struct ipv6hdr, saddr);
	const bool ipv6 = ctx->protocol == bpf_htons(ETH_P_IPV6);
	const __u32 protocol =
		ETH_HLEN + (ipv6 ? __builtin_offsetof(struct ipv6hdr, nexthdr) :
				   __builtin_offsetof(struct iphdr, protocol));
	__be32 pair[2];

	__builtin_memset(key, 0, sizeof(*key));
	if (bpf_skb_load_bytes(ctx, protocol, &key->protocol, 1))
		return false;
	if (ipv6)
		return !bpf_skb_load_bytes(ctx, addresses6, key, 36);
	if (bpf_skb_load_bytes(ctx, addresses4, pair, sizeof(pair)))
		return false;
	map_ipv4(&key->saddr, pair[0]);
	map_ipv4(&key->daddr, pair[1]);
	return !bpf_skb_load_bytes(ctx, ETH_HLEN + sizeof(struct iphdr),
				   &key->sport, 4);
}

/* The connection that user space intends to end: the one that it found earlier may
 * have been replaced by another one with the same addresses and ports. */
struct end_target {
	__u32 endpoint;
	__u32 word; /* former word of one of its entries */
	__u32 mask; /* the bits of it that must be unchanged */
};

/* Reads it from the packet's control block, where user space puts it. */
static __always_inline struct end_target
end_target_read(const struct __sk_buff *ctx)
{
	return (struct end_target){
		.endpoint = ctx->cb[0],
		.word = ctx->cb[1],
		.mask = ctx->cb[2],
	};
}

static __always_inline bool is_end_target(const struct end_target *m,
					  const struct connection *c,
					  __u32 word)
{
	return c->endpoint == m->endpoint && !((word ^ m->word) & m->mask);
}

/* Finds the sequence number that the receiver of a RST expects, or the tag and the flags of an
 * ABORT. */
static __always_inline bool reset_number(const struct connection_key *key,
					 const struct end_target *m,
					 __u32 *number, __u8 *flags)
{
	struct connection *c = entry_find(key), *peer;
	__u32 word;

	if (!c)
		return false;
	word = state_read(c);
	if (!is_end_target(m, c, word) || word & STATE_TRAIT(CONN_SINGLE_ENTRY))
		return false;
	peer = connection_peer(c, key->protocol);
	if (!peer || !ends_are_known(key, c, word, peer, state_read(peer)))
		return false;
	*number = key->protocol == IPPROTO_SCTP ? abort_tag(c, peer, flags) :
						  c->seq_end;
	return true;
}

/* Returns the interface at which packets of a RST's sender arrive: the one through
 * which the sender is reached. */
static __always_inline int reset_arrives(struct __sk_buff *ctx,
					 const struct connection_key *key)
{
	struct bpf_fib_lookup fib = {};

	fib.l4_protocol = key->protocol;
	fib_addresses(&fib, ctx->protocol == bpf_htons(ETH_P_IPV6), &key->daddr,
		      &key->saddr);
	return fib_found(bpf_fib_lookup(ctx, &fib, sizeof(fib), 0)) ?
		       (int)fib.ifindex :
		       RESET_ANYWHERE;
}

/* Writes the sequence number of a RST, which was 0. */
static __always_inline bool reset_write(struct __sk_buff *ctx, __u32 number)
{
	const __u32 tcp = ETH_HLEN + (ctx->protocol == bpf_htons(ETH_P_IPV6) ?
					      sizeof(struct ipv6hdr) :
					      sizeof(struct iphdr));
	__be32 seq = bpf_htonl(number);

	return !bpf_skb_store_bytes(
		       ctx, tcp + __builtin_offsetof(struct tcphdr, seq), &seq,
		       sizeof(seq), 0) &&
	       !bpf_l4_csum_replace(
		       ctx, tcp + __builtin_offsetof(struct tcphdr, check), 0,
		       seq, sizeof(seq));
}

#endif
