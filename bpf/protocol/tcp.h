/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcp.h - TCP (RFC 9293): header, checksum, lifetime, RST, and the part for segments of
 * established connections. The state machine for other segments is in tcp/.
 */
#ifndef LOXILB_TCP_H
#define LOXILB_TCP_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include "config.h"
#include "packet/answer_ip.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "packet/ports.h"
#include "protocol/closing.h"
#include "protocol/facts.h"

#define TCP_SUM_OFFSET __builtin_offsetof(struct tcphdr, check)

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_URG 0x20

static __always_inline struct protocol tcp_facts(void)
{
	return (struct protocol){
		.has_ports = true,
		.has_handshake = true,
		.is_in_xdp = true,
		.has_reset = true,
		.sum_has_addresses = true,
		.sum_offset = TCP_SUM_OFFSET,
		.header = sizeof(struct tcphdr),
		.find = FIND_TCP_STATES,
		.lifetime = LIFETIME_TCP,
	};
}

static __always_inline enum verdict tcp_parse(ctx_t *ctx, struct packet *p,
					      __u32 l4_length)
{
	struct tcphdr *tcp = ctx_header(ctx, p->l4, sizeof(*tcp));
	__u32 header;

	if (!tcp) {
		packet_clear_sequence(p);
		return packet_is_short(p);
	}
	p->tuple.sport = tcp->source;
	p->tuple.dport = tcp->dest;
	p->tcp_flags = ((__u8 *)tcp)[13];
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	header = tcp->doff * 4;
	if (unlikely(header < sizeof(*tcp) || header > l4_length)) {
		p->seq_end = 0;
		p->fault = DROP_MALFORMED;
		return VERDICT_CONTINUE;
	}
	p->seq_end = p->seq + l4_length - header;
	if (p->tcp_flags & (TCP_SYN | TCP_FIN))
		p->seq_end +=
			!!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);
	return VERDICT_CONTINUE;
}

/* Returns the length of a segment's data. */
static __always_inline __u32 tcp_payload(const struct packet *p)
{
	return p->seq_end - p->seq - !!(p->tcp_flags & TCP_SYN) -
	       !!(p->tcp_flags & TCP_FIN);
}

/* Reports whether a segment opens a connection: a SYN without ACK, RST or FIN. */
static __always_inline bool is_opening_syn(const struct packet *p)
{
	const __u8 opens = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;

	return !ONLY_SCTP && (p->tcp_flags & opens) == TCP_SYN;
}

/* How far ahead of the numbers seen in its direction a segment may be, in bytes sent
 * and in bytes acknowledged: the most that may be lost at once before it reaches us.
 * A power of two. */
#define TCP_MAX_AHEAD (1U << 22)

/* Reports whether segments without SYN, FIN and RST leave the state of the connection as
 * it is. If it has a header of the PROXY protocol, the programs that do not handle that
 * take no short cut: so it costs other connections nothing. */
static __always_inline bool tcp_is_established(__u32 word)
{
	const __u32 events = (__u8)~CONN_REPLY_DIRECTION,
		    other = ONLY_PROXY ? 0 : STATE_CHANGES_STREAM;

	return (word & (events | other)) == (CONN_REPLIED | CONN_ASSURED);
}

/* Reports whether a segment continues its direction with numbers that only the real
 * sender can know: both are exact or a little ahead, or one is exact
 * (docs/adr/0067-tcp-state.md). Old segments do not. */
static __always_inline bool tcp_continues(const struct packet *p,
					  const struct connection *c)
{
	__u32 sent = p->seq_end - c->seq_end, acked = p->ack - c->ack;

	if (likely((sent | acked) < TCP_MAX_AHEAD))
		return true;
	return (!sent && (__s32)acked > 0) || (!acked && (__s32)sent > 0);
}

/* Records how far this direction has sent and acknowledged. */
static __always_inline void tcp_record_sequence(const struct packet *p,
						struct connection *c)
{
	if (likely(p->tcp_flags & TCP_ACK) && tcp_continues(p, c)) {
		c->seq_end = p->seq_end;
		c->ack = p->ack;
	}
}

/* A half-closed connection has the timeout of an open one, or under pressure of a
 * closing one: its client may be gone. */
static __always_inline struct timeout tcp_timeout(__u32 word)
{
	const __u8 flags = word;
	struct timeout t = {
		.usual = timeout_tcp_closing,
		.pressed = timeout_tcp_closing,
	};

	if (connection_is_closed(flags)) {
		t.usual = timeout_tcp_closed;
		t.pressed = timeout_closed_pressed;
	} else if (connection_may_be_closed(word)) {
		t.pressed = timeout_tcp_closed;
	} else if (connection_is_half_closed(flags)) {
		t.usual = timeout_tcp_established;
		t.least = timeout_tcp_closing;
		t.idle = IDLE_REPLACES;
	} else if (!(flags & (CONN_FIN_CLIENT | CONN_FIN_ENDPOINT))) {
		t.usual = flags & CONN_ASSURED ? timeout_tcp_established :
						 timeout_tcp_syn;
		t.pressed = ~0U;
		t.idle = flags & CONN_ASSURED ? IDLE_REPLACES : IDLE_IGNORED;
	}
	return t;
}

static __always_inline enum verdict tcp_translate(ctx_t *ctx, struct packet *p,
						  struct connection *c)
{
	return ports_translate(ctx, p, c, TCP_SUM_OFFSET, false);
}

/* Rewrites a segment into its answer, without options and payload. The answer's
 * source is the segment's destination. */
static __noinline __maybe_unused bool
tcp_answer(ctx_t *ctx, struct packet *p, __u8 flags, __u32 seq, __u32 ack)
{
	__u32 l4 = p->l3 +
		   (p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	struct ip_addr src = p->tuple.daddr;
	bool partial = ctx_checksum_is_partial(ctx, p->l4 + TCP_SUM_OFFSET);
	struct tcphdr tcp = {
		.source = p->tuple.dport,
		.dest = p->tuple.sport,
		.seq = bpf_htonl(seq),
		.ack_seq = bpf_htonl(ack),
		.doff = 5,
	};
	__u32 pseudo;

	/* the device would write the checksum to the old place */
	if (partial && l4 != p->l4)
		return false;
	((__u8 *)&tcp)[13] = flags;
	if (ctx_resize(ctx, l4 + sizeof(tcp)))
		return false;
	pseudo = pseudo_sum(&src, &p->tuple.saddr, IPPROTO_TCP, sizeof(tcp));
	if (partial)
		tcp.check = sum_fold(pseudo);
	else
		tcp.check = ~sum_fold(bpf_csum_diff(NULL, 0, (void *)&tcp,
						    sizeof(tcp), pseudo));
	return !ctx_store(ctx, l4, &tcp, sizeof(tcp)) &&
	       answer_ip(ctx, p, &src, IPPROTO_TCP, sizeof(tcp));
}

/* Rewrites a segment into the RST that answers it. */
static __always_inline bool tcp_reset_sender(ctx_t *ctx, struct packet *p)
{
	if (p->tcp_flags & TCP_ACK)
		return tcp_answer(ctx, p, TCP_RST, p->ack, 0);
	return tcp_answer(ctx, p, TCP_RST | TCP_ACK, 0, p->seq_end);
}

#endif
