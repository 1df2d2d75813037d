/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ftp.h - reads the control connections of FTP, and expects the data connections that their
 * commands and replies announce (ftp_data.h).
 *
 *	client  > VIP:21       PASV                        EPSV
 *	endpoint > client      227 ... (31,31,31,1,P)      229 ... (|||P|)
 *	            becomes    227 ... (20,20,20,1,P)      the same, if P is free at the VIP
 *
 * The text keeps its length, since the text before the numbers is arbitrary (RFC 959,
 * RFC 1123 section 4.1.2.6), so no sequence number changes. PORT and EPRT do not change
 * either: whatever address they name, only the client's own address is used.
 *
 * A line counts if it begins where the line before ended, in sequence, and has its numbers in
 * one segment, which may repeat earlier data in other pieces. Anything else passes as it is.
 * It has its own program, shared with the PROXY protocol, so other connections pay nothing
 * (docs/adr/0104-ftp-tftp.md).
 */
#ifndef LOXILB_HELPER_FTP_H
#define LOXILB_HELPER_FTP_H

#include "conntrack/conntrack.h"
#include "helper/ftp_data.h"
#include "helper/ftp_place.h"
#include "helper/ftp_text.h"
#include "proxy/change.h"

#if ONLY_PROXY

/* Records whether the next byte of this direction begins a line, for each segment with
 * new data, even after a gap. The end of a fragment is unknown. */
static __always_inline void ftp_record_end(ctx_t *ctx, const struct packet *p,
					   struct connection *c, __u32 word)
{
	const __u32 within = STATE_FTP_WITHIN_LINE;
	__u8 last = 0;

	if (!p->fragment)
		bpf_skb_load_bytes(ctx, p->l3 + p->length - 1, &last,
				   sizeof(last));
	if ((last != '\n') != !!(word & within))
		state_change(c, word, within, last == '\n' ? 0 : within);
}

/* Decides whether a segment may announce a data connection, before it updates the state.
 * Global (verifier: globals). */
__noinline __maybe_unused int ftp_decide(ctx_t *ctx, struct packet *p,
					 struct connection *c)
{
	__u32 word;

	if (!p || !c || p->chunk) /* verifier: null */
		return 0;
	word = state_read(c);
	if (p->tcp_flags & TCP_SYN) {
		if (word & CONN_REPLY_DIRECTION)
			p->chunk = FTP_SYN_ACK;
		return 0;
	}
	if (!tcp_payload(p) || !(p->tcp_flags & TCP_ACK) ||
	    p->tcp_flags & TCP_RST)
		return 0;
	if (!p->fragment && (__s32)(p->seq - c->seq_end) < 0)
		p->chunk = FTP_AGAIN;
	if (!tcp_continues(p, c) || (__s32)(p->seq_end - c->seq_end) <= 0)
		return 0;
	if (p->seq == c->seq_end && !p->fragment &&
	    !(word & STATE_FTP_WITHIN_LINE))
		p->chunk = FTP_LINE;
	if (p->chunk == FTP_AGAIN) {
		p->chunk = FTP_FURTHER;
		p->fragment_id = c->seq_end;
	}
	ftp_record_end(ctx, p, c, word);
	return 0;
}

/* Reports whether no service uses a port of the VIP. */
static __noinline bool ftp_is_free(ctx_t *ctx, struct packet *p,
				   const struct ip_addr *vip, __be16 port)
{
	const struct ip_addr daddr = p->tuple.daddr;
	const __be16 dport = p->tuple.dport;
	bool found;

	p->tuple.daddr = *vip;
	p->tuple.dport = port;
	found = service_find_any(p, ctx_mark(ctx));
	p->tuple.daddr = daddr;
	p->tuple.dport = dport;
	return !found;
}

/* Expects a client's connection to a port of the VIP, if neither a service nor another data
 * connection has it. */
static __noinline bool ftp_expect_at(ctx_t *ctx, struct packet *p,
				     struct ftp_scratch *s, __be16 port)
{
	const struct expectation *other;

	s->key.port = port;
	other = expectation_find(&s->key, p->now);
	if (other &&
	    (other->endpoint != s->row.endpoint || other->port != s->row.port))
		return false;
	return ftp_is_free(ctx, p, &s->key.server, port) &&
	       !bpf_map_update_elem(&fragments, &s->key, &s->row, BPF_ANY);
}

/* Stores the expectation, and returns the port for the client or endpoint to connect
 * to; 0: none is free. wanted: tried first. */
static __always_inline __u32 ftp_expect_somewhere(ctx_t *ctx, struct packet *p,
						  struct ftp_scratch *s,
						  __u32 wanted)
{
	__u32 port = wanted;
	int tries = 0;

	if (s->key.kind == EXPECT_ACTIVE) {
		s->key.port = port;
		return bpf_map_update_elem(&fragments, &s->key, &s->row,
					   BPF_ANY) ?
			       0 :
			       port;
	}
	NO_UNROLL
	while (!ftp_expect_at(ctx, p, s, port)) {
		if (++tries == FTP_PORT_TRIES)
			return 0;
		port = bpf_htons(0x8000 | (bpf_get_prandom_u32() & 0x7fff));
	}
	return port;
}

/* Counts an announcement that is not followed, or a control connection whose announcements
 * cannot be. */
static __always_inline __u32 ftp_refuse(enum ftp_refusal why)
{
	__sync_fetch_and_add(&ftp_refusals[why], 1);
	return 0;
}

/* Expects the data connection of s->key and s->row instead of the control connection's
 * last one. Returns the port for the client or endpoint to connect to; 0: it is not
 * expected. Global (verifier: globals). */
__noinline __maybe_unused __u32 ftp_expect(ctx_t *ctx, struct packet *p,
					   struct connection *c)
{
	struct ftp_scratch *s = ftp_scratch_get();
	struct announcement *last;
	__u32 port;

	if (!p || !c || !s) /* verifier: null */
		return 0;
	last = ftp_find_place(p, c, s);
	if (s->free_place >= FTP_PER_CLIENT)
		return ftp_refuse(FTP_REFUSED_CLIENT);
	port = s->row.port;
	if (last && s->is_own && last->kind == s->key.kind &&
	    last->port == s->row.port) {
		port = last->vip_port;
		if (p->chunk != FTP_LINE)
			return port; /* it may be used up */
	} else if (last) {
		ftp_forget(s, last);
	}
	s->row.place = s->free_place;
	port = ftp_expect_somewhere(ctx, p, s, port);
	if (!port)
		return ftp_refuse(FTP_REFUSED_PORT);
	s->announced.kind = s->key.kind;
	s->announced.port = s->row.port;
	s->announced.vip_port = port;
	bpf_map_update_elem(&fragments, &s->place, &s->announced, BPF_ANY);
	return port;
}

/* Reports whether a reply names the endpoint's address, or the VIP, as servers can be
 * configured to. */
static __always_inline bool ftp_names_endpoint(const struct ftp_scratch *s,
					       const struct packet *p,
					       const struct connection *c)
{
	const __be32 addr = bpf_htonl(s->scan.addr);

	return is_mapped_ipv4(&c->daddr) && is_mapped_ipv4(&c->saddr) &&
	       (addr == c->saddr.word[3] ||
		(!p->ipv6 && addr == p->tuple.saddr.word[3]));
}

/* Reports whether a line that is repeated announced the last data connection. */
static __always_inline bool ftp_is_last(const struct packet *p,
					const struct connection *c,
					struct ftp_scratch *s)
{
	const struct announcement *last = ftp_find_place(p, c, s);

	return last && s->is_own && last->seq == s->announced.seq;
}

/* Handles a reply of the endpoint: the client sees the VIP instead of its address. */
static __always_inline bool ftp_reply(ctx_t *ctx, struct packet *p,
				      struct connection *c,
				      struct ftp_scratch *s)
{
	const bool is_227 = s->scan.kind == FTP_227;
	__u32 port;

	if (!is_227 && s->scan.kind != FTP_229)
		return true;
	if (s->scan.port < FTP_MIN_PORT ||
	    (is_227 && !ftp_names_endpoint(s, p, c)))
		return true;
	expectation_make_key(&s->key, &c->daddr, &c->saddr, 0, EXPECT_PASSIVE);
	__builtin_memset(&s->row, 0, sizeof(s->row));
	s->row.endpoint = c->endpoint;
	s->row.since = p->now;
	s->row.port = bpf_htons(s->scan.port);
	s->row.service_port = c->sport;
	s->row.vip = p->tuple.saddr;
	port = bpf_ntohs(ftp_expect(ctx, p, c));
	if (!port || (!is_227 && port == s->scan.port))
		return true;
	return ftp_write_numbers(
		ctx, p, is_227 ? bpf_ntohl(c->saddr.word[3]) : 0, port);
}

/* Handles a command of the client. If the endpoint does not see the client's own
 * address, it refuses the command, which names an address unknown to it. */
static __always_inline bool ftp_command(ctx_t *ctx, struct packet *p,
					struct connection *c,
					struct ftp_scratch *s)
{
	if ((s->scan.kind != FTP_PORT && s->scan.kind != FTP_EPRT) ||
	    s->scan.port < FTP_MIN_PORT ||
	    !same_addr(&c->saddr, &p->tuple.saddr))
		return true;
	expectation_make_key(&s->key, &p->tuple.saddr, &c->daddr, 0,
			     EXPECT_ACTIVE);
	__builtin_memset(&s->row, 0, sizeof(s->row));
	s->row.vip = p->tuple.daddr;
	s->row.endpoint = c->endpoint;
	s->row.since = p->now;
	s->row.port = bpf_htons(s->scan.port);
	ftp_expect(ctx, p, c);
	return true;
}

/* Handles a segment that may announce a data connection. Global (verifier: globals). */
__noinline __maybe_unused bool ftp_read(ctx_t *ctx, struct packet *p,
					struct connection *c)
{
	struct ftp_scratch *s = ftp_scratch_get();

	if (!p || !c || !s) /* verifier: null */
		return true;
	if (!ftp_scan(ctx, p))
		return true;
	if (p->chunk == FTP_FURTHER &&
	    (__s32)(p->seq + s->scan.line - p->fragment_id) >= 0)
		p->chunk = FTP_LINE;
	if (s->scan.kind == FTP_234) {
		if (p->chunk == FTP_LINE && c->flags & CONN_REPLY_DIRECTION)
			ftp_refuse(FTP_REFUSED_TLS);
		return true;
	}
	if (p->chunk != FTP_LINE && !ftp_is_last(p, c, s))
		return true;
	return c->flags & CONN_REPLY_DIRECTION ? ftp_reply(ctx, p, c, s) :
						 ftp_command(ctx, p, c, s);
}

static __always_inline enum verdict ftp_change(ctx_t *ctx, struct packet *p,
					       struct connection *c)
{
	bool done = true;

	if (p->chunk == FTP_SYN_ACK)
		done = option_erase(ctx, p, OPTION_MPTCP);
	else if (p->chunk == FTP_LINE || p->chunk == FTP_AGAIN ||
		 p->chunk == FTP_FURTHER)
		done = ftp_read(ctx, p, c);
	return done ? VERDICT_CONTINUE : drop(p, DROP_NOT_LINEAR);
}
#else
static __always_inline int ftp_decide(ctx_t *ctx, struct packet *p,
				      struct connection *c)
{
	return 0;
}

static __always_inline enum verdict ftp_change(ctx_t *ctx, struct packet *p,
					       struct connection *c)
{
	return VERDICT_CONTINUE;
}
#endif

/* Changes a packet of a connection whose segments have their own program, before it is
 * translated. */
static __always_inline enum verdict segment_change(ctx_t *ctx, struct packet *p,
						   struct connection *c)
{
	return ONLY_PROXY && c->hop & HOP_HELPER ? ftp_change(ctx, p, c) :
						   proxy_change(ctx, p, c);
}

#endif
