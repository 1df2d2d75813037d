/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * protocol.h - calls a packet's protocol. Each protocol is a header file next to this
 * one; the stages only call the functions below.
 *
 * A new protocol needs a header, and a case in each switch whose default does not
 * suffice. The compiler inlines the switches: a branch on a constant property costs as
 * much as a comparison with the protocol. TCP comes first, as most packets are TCP.
 *
 * The state machines of TCP and SCTP are stages of their own (tcp/, sctp/), which
 * tc.bpf.c calls. All others are flows: conntrack/flow.h records the events that they
 * report.
 *
 * SCTP packets have their own programs (ONLY_SCTP). The other programs have only the
 * parts of SCTP for the sweep, ICMP errors and later fragments.
 */
#ifndef LOXILB_PROTOCOL_H
#define LOXILB_PROTOCOL_H

#include <linux/in.h>
#include <linux/in6.h>
#include <stdbool.h>
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/facts.h"
#include "protocol/flow.h"
#include "protocol/icmp.h"
#include "protocol/sctp.h"
#include "protocol/sctp_packet.h"
#include "protocol/tcp.h"
#include "protocol/udp.h"

/* Returns the properties of the protocol. */
static __always_inline struct protocol protocol_of(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return tcp_facts();
	case IPPROTO_UDP:
		return udp_facts();
	case IPPROTO_SCTP:
		return sctp_facts();
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return echo_facts(protocol == IPPROTO_ICMPV6);
	default: /* without connections: counts as if its header were of that size */
		return (struct protocol){ .header = sizeof(struct udphdr) };
	}
}

/* Reports whether packets of this protocol and IP version can have connections. */
static __always_inline bool protocol_has_connections(const struct packet *p)
{
	const __u8 protocol = p->tuple.protocol;

	return protocol_of(protocol).has_ports ||
	       protocol == icmp_protocol(p->ipv6);
}

/* Parses the header at p->l4. l4_length: from there to the end of the packet. OTHER:
 * the protocol has no connections. */
static __always_inline enum verdict protocol_parse(ctx_t *ctx, struct packet *p,
						   __u32 l4_length)
{
	if (!ONLY_SCTP && likely(p->tuple.protocol == IPPROTO_TCP))
		return tcp_parse(ctx, p, l4_length);
	packet_clear_sequence(p);
	if (ONLY_SCTP)
		return p->tuple.protocol == IPPROTO_SCTP ?
			       sctp_parse(ctx, p, l4_length) :
			       VERDICT_OTHER;
	switch (p->tuple.protocol) {
	case IPPROTO_UDP:
		return udp_parse(ctx, p, l4_length);
	case IPPROTO_ICMP:
		return p->ipv6 ? VERDICT_OTHER : echo_parse(ctx, p, l4_length);
	case IPPROTO_ICMPV6:
		return p->ipv6 ? echo_parse(ctx, p, l4_length) : VERDICT_OTHER;
	default:
		return VERDICT_OTHER;
	}
}

/* Reports whether a packet without a connection may open one. */
static __always_inline bool protocol_opens(const struct packet *p)
{
	if (ONLY_SCTP)
		return p->chunk == SCTP_INIT;
	switch (p->tuple.protocol) {
	case IPPROTO_TCP:
		return is_opening_syn(p);
	default:
		return true;
	}
}

/* Reports whether a packet leaves the state of its connection unchanged: only counters
 * and sequence numbers change. word: of its entry. */
static __always_inline bool protocol_is_settled(const struct packet *p,
						__u32 word)
{
	switch (p->tuple.protocol) {
	case IPPROTO_TCP:
		return tcp_is_established(word) &&
		       !(p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST));
	default:
		return flow_is_settled(word);
	}
}

/* Returns the first value of connection.ack of the answers to a packet that opens a
 * connection: SCTP's have the tag that INIT announces. */
static __always_inline __u32 protocol_first_ack(const struct packet *p)
{
	return ONLY_SCTP ? p->seq : p->seq + 1;
}

/* Returns the events that a packet of a flow adds to the state. words: of
 * its entry, and of the other direction's; 0 if answers are not seen. */
static __always_inline __u8 protocol_events(const struct packet *p, __u32 word,
					    __u32 peer_word)
{
	return flow_events(word, peer_word);
}

/* Records a packet of a connection. */
static __always_inline void protocol_record(const struct packet *p,
					    struct connection *c)
{
	switch (p->tuple.protocol) {
	case IPPROTO_TCP:
		tcp_record_sequence(p, c);
	}
}

/* Returns how long a connection may be silent. */
static __always_inline struct timeout protocol_timeout(__u8 protocol,
						       __u32 word)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return tcp_timeout(word);
	case IPPROTO_UDP:
		return udp_timeout(word);
	case IPPROTO_SCTP:
		return sctp_timeout(word);
	default:
		return echo_timeout();
	}
}

/* Returns the length of the data after the protocol's header. */
static __always_inline __u32 protocol_payload(const struct packet *p)
{
	switch (p->tuple.protocol) {
	case IPPROTO_TCP:
		return tcp_payload(p);
	default:
		return p->length - (p->l4 - p->l3) -
		       protocol_of(p->tuple.protocol).header;
	}
}

/* Writes the connection's ports, and corrects the checksum for them and for the
 * addresses. */
static __always_inline enum verdict
protocol_translate(ctx_t *ctx, struct packet *p, struct connection *c)
{
	if (ONLY_SCTP)
		return sctp_translate(ctx, p, c);
	if (p->tuple.protocol == IPPROTO_TCP)
		return tcp_translate(ctx, p, c);
	if (likely(p->tuple.protocol == IPPROTO_UDP))
		return udp_translate(ctx, p, c);
	return echo_translate(ctx, p, c);
}

/* Reports whether a packet is the one by which its protocol refuses packets. Such a
 * packet is never answered. */
static __always_inline bool protocol_is_reset(const struct packet *p)
{
	return p->tcp_flags & TCP_RST;
}

/* Turns a packet into the one by which its protocol refuses it. */
static __always_inline bool protocol_reset(ctx_t *ctx, struct packet *p)
{
	return ONLY_SCTP ? sctp_reset_sender(ctx, p) : tcp_reset_sender(ctx, p);
}

#endif
