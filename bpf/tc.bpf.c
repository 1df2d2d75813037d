// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tc.bpf.c - the load balancer at the tc hooks (tcx, or clsact).
 *
 *	parse -> (foreign? flood?) -> conntrack find -> (miss: foreign? -> open)
 *	      -> translate -> forward -> finish
 *
 * Each stage returns a verdict. Only finish() counts drops and returns tc's
 * codes (forward/finish.h).
 *
 * SCTP packets leave by a tail call to a separate program, if a service has SCTP. It is
 * also compiled from this file, with ONLY_SCTP (docs/adr/0093-sctp.md). There are
 * separate programs for packets that open QUIC connections (ONLY_QUIC), and for
 * segments of connections with a PROXY header and of FTP control connections
 * (helper/ftp.h, ONLY_PROXY) (docs/adr/0096-proxy-protocol.md,
 * docs/adr/0104-ftp-tftp.md).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "abi_types.h"
#include "config.h"
#include "maps.h"
#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "conntrack/expiry.h"
#include "conntrack/fragment.h"
#include "conntrack/silence.h"
#include "filter/foreign.h"
#include "firewall/firewall.h"
#include "forward/finish.h"
#include "forward/forward_uncommon.h"
#include "helper/ftp.h"
#include "lease/lease.h"
#include "open/open.h"
#include "open/open_quic.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "parse/parse.h"
#include "proxy/change.h"
#include "quic/hand_over.h"
#include "route/forward.h"
#include "route/nexthop.h"
#include "sctp/list.h"
#include "sctp/proof.h"
#include "sctp/state.h"
#include "translate/icmp.h"
#include "translate/nat.h"

/* Whether this is a program to which another one hands packets over as they arrived. */
#define IS_SPECIAL (ONLY_SCTP || ONLY_PROXY)

/* Ends a connection that was silent for a while, if it is expired. Returns whether it
 * was. */
static __noinline bool connection_discard_expired(struct packet *p,
						  struct connection *c)
{
	__u32 word = state_read(c);

	if (!connection_is_expired(c, p->tuple.protocol, p->now, 0)) {
		hop_forget_if_silent(c, p->now);
		return false;
	}
	connection_discard(&p->tuple, c, word);
	return true;
}

/* Updates the state of a connection. hash: of entry_find_hashed(). Returns MISS if it
 * was expired, or if it was closed and this packet opens another one. */
static __always_inline enum verdict connection_update(ctx_t *ctx,
						      struct packet *p,
						      struct connection *c,
						      __u64 hash)
{
	enum verdict v = packet_check_fault(p);

	if (v != VERDICT_CONTINUE)
		return v;
	if (unlikely(connection_was_silent(p, c)) &&
	    connection_discard_expired(p, c))
		return VERDICT_MISS;
	if (ONLY_SCTP)
		return sctp_update(p, c, hash);
	if (ONLY_PROXY && unlikely(c->hop & HOP_HELPER))
		ftp_decide(ctx, p, c);
	else if (ONLY_PROXY)
		proxy_decide(ctx, p, c);
	if (ONLY_PROXY || p->tuple.protocol == IPPROTO_TCP)
		return tcp_update(ctx, p, c, hash);
	return flow_update(p, c, hash);
}

/* Finds the connection of a packet and updates its state; VERDICT_MISS if there is
 * none. replies: only if the packet is an answer. An entry that has ended may be
 * moving (grow.h): then it is looked up again, and gets the changes that its old
 * place missed. */
static __always_inline enum verdict connection_track(ctx_t *ctx,
						     struct packet *p,
						     struct connection **found,
						     bool replies)
{
	__u64 hash;
	struct connection *c =
		entry_find_hashed(&p->tuple, is_opening_syn(p), &hash);
	enum verdict v;

	NO_UNROLL
	for (int n = 0; n < 2; n++) {
		if (!c || (replies && !(c->flags & CONN_REPLY_DIRECTION)))
			return VERDICT_MISS;
		*found = c;
		v = connection_update(ctx, p, c, hash);
		if (likely(v < VERDICT_MISS))
			return v;
		if (v == VERDICT_MISS && (n || !(state_read(c) & STATE_ENDED)))
			return v;
		if (entry_settle(&p->tuple))
			break;
		c = entry_find(&p->tuple);
	}
	return drop(p, DROP_CONNECTION_RACE);
}

/* Translates and forwards a packet on the common path. Takes its next hop first, to save
 * stack. */
static __always_inline enum verdict forward_common(ctx_t *ctx, struct packet *p,
						   struct connection *c,
						   const struct hop *w,
						   const __u16 l3)
{
	enum verdict v = forward(ctx, p, w), translated;

	if (v != VERDICT_REDIRECT)
		return v;
	translated = translate(ctx, p, c, l3);
	return translated == VERDICT_CONTINUE ? v : translated;
}

/* Forwards a packet of a connection off the common path, or whose next hop must be looked
 * up, if rules and policies allow it. */
static __always_inline enum verdict
forward_if_allowed(ctx_t *ctx, struct packet *p, struct connection *c)
{
	if (unlikely(rule_count) && firewall_drops_connection(ctx, p, c))
		return drop(p, DROP_RULE);
	if (ipsec_drops(ctx, p, c))
		return drop(p, DROP_IPSEC_POLICY);
	return forward_uncommon(ctx, p, c, next_hop_resolve(ctx, p, c));
}

/* Forwards like forward_uncommon(), and counts the handshake: only SYNs that leave are
 * evidence about the endpoint. */
static __always_inline enum verdict forward_others(ctx_t *ctx, struct packet *p,
						   struct connection *c)
{
	enum verdict v = forward_if_allowed(ctx, p, c);

	if (likely(!is_opening_syn(p)))
		return v;
	if (is_forwarded(v))
		handshake_opened_late(p, c);
	else
		redial_forget(p);
	return v;
}

/* Handles a packet without a connection. It may open one; otherwise it is the
 * kernel's. */
static __always_inline enum verdict balance_new(ctx_t *ctx, struct packet *p,
						const __u16 l3)
{
	enum verdict v;

	if (is_foreign_after_miss(p))
		return firewall_judge_foreign(ctx, p);
	v = connection_open(ctx, p);
	if (!ONLY_SCTP && unlikely(v == VERDICT_QUIC))
		return quic_hand_over(ctx, p,
				      l3 ? TAIL_QUIC_ETHER : TAIL_QUIC_LAYER3);
	return unlikely(v == VERDICT_PASS) ? firewall_finish(ctx, p, v) : v;
}

/* Calls the program at this place of tail_programs for a packet. Returns if there is
 * none. The other program traces the packet from its beginning. Inlined, since older
 * kernels limit the stack of functions with tail calls. */
static __always_inline void hand_over(ctx_t *ctx, const struct packet *p,
				      const __u32 at)
{
	int traces = trace_suspend(p);

	ctx->cb[0] = p->priority_tag;
	bpf_tail_call(ctx, &tail_programs, at);
	trace_resume(p, traces);
}

static __always_inline void sctp_hand_over(ctx_t *ctx, const struct packet *p,
					   enum verdict v, const __u32 at)
{
	if (!IS_SPECIAL && v == VERDICT_OTHER &&
	    p->tuple.protocol == IPPROTO_SCTP)
		hand_over(ctx, p, at);
}

/* Calls the program for a segment of a connection with a PROXY header. If the program
 * is missing, although it loads before such connections open, the segment is dropped.
 */
static __always_inline void proxy_hand_over(ctx_t *ctx, struct packet *p,
					    enum verdict *v, const __u32 at)
{
	if (IS_SPECIAL || *v != VERDICT_OTHER)
		return;
	hand_over(ctx, p, at);
	*v = drop(p, DROP_CONNECTION_RACE);
}

#if ONLY_SCTP
/* Finds the association of a packet on an additional path. Firewall rules judge each of
 * these packets, since no entry has their verdict. MISS: there is none. */
static __always_inline enum verdict
sctp_track_path(ctx_t *ctx, struct packet *p, struct connection **c)
{
	const struct opening *o = opening_get();
	enum verdict v = VERDICT_CONTINUE;
	int found;

	if (unlikely(rule_count && marked_services))
		firewall_mark(ctx, p);
	found = sctp_find_association(ctx, p);
	if (!o || found == SCTP_FOUND_NONE)
		return VERDICT_MISS;
	if (found == SCTP_FOUND_UNKNOWN_TAG)
		return drop(p, DROP_UNPROVEN_ADDRESS);
	if (unlikely(rule_count))
		v = firewall_judge(ctx, p);
	if (v == VERDICT_CONTINUE)
		v = admit_source(p, &o->service);
	if (v != VERDICT_CONTINUE)
		return v;
	v = sctp_judge_address(ctx, p);
	if (v != VERDICT_CONTINUE)
		return v;
	sctp_enter_path(p);
	v = connection_track(ctx, p, c, false);
	if (v == VERDICT_MISS)
		sctp_leave_path(p);
	return v;
}

/* Finds the half-open entry of a packet whose tag is unknown: INIT ACK may have passed another
 * node, or INITs were forged meanwhile. Its receiver judges the packet. */
static __noinline struct connection *sctp_find_half_open(const struct packet *p)
{
	struct connection *c = p->ack ? entry_find(&p->tuple) : NULL;
	__u32 word = c ? state_read(c) : 0;

	if (!c || word & STATE_TRAIT(CONN_RESTING | CONN_ENDED) ||
	    !sctp_is_of_another(p, c, word))
		return NULL;
	return c;
}

/* Handles a packet without entry, or with another one's tag, if it came by a further path of an
 * association. MISS: it did not. Global (verifier: globals). */
__noinline enum verdict sctp_balance_path(ctx_t *ctx, struct packet *p)
{
	struct connection *c = NULL;
	enum verdict v;

	if (!p) /* verifier: null */
		return VERDICT_DROP;
	v = sctp_track_path(ctx, p, &c);
	if (v == VERDICT_MISS) {
		c = sctp_find_half_open(p);
		if (!c)
			return v;
		v = forward_if_allowed(ctx, p, c);
	} else if (v == VERDICT_CONTINUE && c) {
		v = forward_if_allowed(ctx, p, sctp_outgoing_entry(p, c, true));
	} else {
		return v;
	}
	if (is_forwarded(v))
		count(p, c);
	return v;
}

/* Forwards a packet of an association that has used a further path, or an endpoint's
 * INIT ACK. Global (verifier: globals). */
__noinline enum verdict sctp_forward(ctx_t *ctx, struct packet *p,
				     struct connection *c)
{
	if (!p || !c) /* verifier: null */
		return VERDICT_DROP;
	if (p->chunk == SCTP_INIT_ACK && c->flags & CONN_REPLY_DIRECTION)
		sctp_list_vips(ctx, p, c);
	if (c->hop & HOP_PATHS) {
		if (sctp_is_stray_proof(ctx, p))
			return drop(p, DROP_UNPROVEN_ADDRESS);
		c = sctp_outgoing_entry(p, c, false);
	}
	return forward_if_allowed(ctx, p, c);
}

/* Lists the service's other VIPs in the INIT ACK of an endpoint on this machine. */
static __always_inline void sctp_list_locally(ctx_t *ctx, struct packet *p,
					      const struct connection *c)
{
	if (unlikely(p->chunk == SCTP_INIT_ACK))
		sctp_list_vips(ctx, p, c);
}
#else
static __always_inline enum verdict sctp_balance_path(ctx_t *ctx,
						      struct packet *p)
{
	return VERDICT_MISS;
}

static __always_inline enum verdict sctp_forward(ctx_t *ctx, struct packet *p,
						 struct connection *c)
{
	return VERDICT_DROP;
}

static __always_inline void sctp_list_locally(ctx_t *ctx, struct packet *p,
					      const struct connection *c)
{
}
#endif

/* Reports whether sctp_forward() forwards a packet with this entry. */
static __always_inline bool sctp_is_special(const struct packet *p,
					    const struct connection *c)
{
	return ONLY_SCTP &&
	       unlikely(p->chunk == SCTP_INIT_ACK || c->hop & HOP_PATHS);
}

/* Handles a packet that has ports. l3: the offset of the IP header when the
 * packet arrived. */
static __always_inline enum verdict balance(ctx_t *ctx, struct packet *p,
					    const __u16 l3)
{
	const __u32 length = p->length;
	struct connection *c = NULL;
	const struct hop *w;
	enum verdict v;

	if (!ONLY_PROXY && unlikely(foreign_are_many(p)) && is_foreign(p))
		return firewall_judge_foreign(ctx, p);
	if (!ONLY_PROXY && unlikely(may_be_syn_flood(p))) {
		v = syn_flood_answer(ctx, p);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	v = connection_track(ctx, p, &c, false);
	if (ONLY_SCTP && v == VERDICT_MISS) {
		v = sctp_balance_path(ctx, p);
		if (v != VERDICT_MISS)
			return v;
	}
	if (v == VERDICT_MISS)
		return ONLY_PROXY ? drop(p, DROP_CONNECTION_RACE) :
				    balance_new(ctx, p, l3);
	if (v != VERDICT_CONTINUE || !c) { /* c: verifier: null */
		proxy_hand_over(ctx, p, &v,
				l3 ? TAIL_PROXY_ETHER : TAIL_PROXY_LAYER3);
		return v;
	}
	w = hop_of(c);
	if (sctp_is_special(p, c))
		v = sctp_forward(ctx, p, c);
	else if (likely(l3 && hop_is_common(p, c, w)))
		v = forward_common(ctx, p, c, w, l3);
	else
		v = forward_others(ctx, p, c);
	if (IS_SPECIAL)
		p->length = length; /* counted as it arrived */
	if (is_forwarded(v))
		count(p, c);
	return v;
}

/* Forwards a packet without connection and service, if an endpoint sends it to its
 * client directly (direct.h). Global (verifier: globals). */
__noinline enum verdict forward_direct_answer(ctx_t *ctx, struct packet *p)
{
	struct connection *c;
	enum verdict v;

	if (!p)
		return VERDICT_DROP;
	c = direct_answer_entry(&p->tuple, p->now);
	if (!c)
		return VERDICT_PASS;
	v = packet_check_fault(p);
	if (v != VERDICT_CONTINUE)
		return v;
	if (ipsec_drops(ctx, p, c))
		return drop(p, DROP_IPSEC_POLICY);
	v = forward_first(ctx, p, c, next_hop_resolve(ctx, p, c));
	if (is_forwarded(v))
		count_traffic(p, c);
	return v;
}

/* Finds the connection of a later fragment or an ICMP error. CONTINUE: it is in *c. */
static __always_inline enum verdict
related_find_connection(ctx_t *ctx, struct packet *p, struct connection **c)
{
	return p->later_fragment ? fragment_find_connection(p, c) :
				   icmp_translate(ctx, p, c);
}

/* Forwards a later fragment or an ICMP error through the connection c. The error may be
 * forged, so it is not a sign of life of the connection. */
static __noinline enum verdict related_forward(ctx_t *ctx, struct packet *p,
					       struct connection *c)
{
	enum verdict v, hop;

	if (!c)
		return VERDICT_DROP;
	hop_forget_if_silent(c, p->now);
	if (ipsec_drops(ctx, p, c) ||
	    (unlikely(ipsec_count) && p->icmp_error && ipsec_stops_error(p, c)))
		return drop(p, DROP_IPSEC_POLICY);
	if (!p->later_fragment)
		p->rules_skipped = true;
	else if (unlikely(rule_count) && !p->direct &&
		 firewall_drops_connection(ctx, p, c))
		return drop(p, DROP_RULE);
	hop = next_hop_resolve(ctx, p, c);
	if (hop == VERDICT_ANSWER)
		return VERDICT_DROP; /* no ICMP error is sent about either (RFC 1122) */
	if (p->later_fragment)
		c->seen = p->now;
	v = forward_uncommon(ctx, p, c, hop);
	if (p->later_fragment && is_forwarded(v))
		count(p, c);
	return v;
}

/* Handles later fragments and ICMP errors, which may belong to a connection but do not
 * open one. Global, like answer(). Its stack frame is small, since the deepest chain of
 * calls has 512 bytes in total. */
__noinline enum verdict forward_related(ctx_t *ctx, struct packet *p)
{
	struct connection *c = NULL;
	enum verdict v;

	if (!p)
		return VERDICT_DROP;
	v = related_find_connection(ctx, p, &c);
	if (unlikely(rule_count) && v == VERDICT_PASS && p->later_fragment &&
	    p->tuple.dport)
		return firewall_mark(ctx, p);
	if (v != VERDICT_CONTINUE || !c)
		return v;
	return related_forward(ctx, p, c);
}

/* Handles a packet that does not open a connection, and has no connection by its ports.
 */
static __always_inline enum verdict handle_other(ctx_t *ctx, struct packet *p,
						 enum verdict v, const __u16 l3)
{
	int refused = 0;

	sctp_hand_over(ctx, p, v, l3 ? TAIL_SCTP_ETHER : TAIL_SCTP_LAYER3);
	if (!IS_SPECIAL && v == VERDICT_UNCOMMON)
		v = forward_related(ctx, p);
	else if (unlikely(rule_count) && v == VERDICT_OTHER)
		v = firewall_judge_other(ctx, p);
	else if (unlikely(rule_count) && p->pass == PASS_EXTENSION_CHAIN)
		v = firewall_judge_unparsed(ctx, p);
	if (l3 == ETH_HLEN && v == VERDICT_PASS)
		refused = lease_refuses(ctx);
	if (!refused)
		return v;
	p->length = ctx_length(ctx) - l3;
	return drop(p, refused);
}

static __always_inline int handle_ingress(ctx_t *ctx, __u16 l3)
{
	struct packet p;
	enum verdict v;

	packet_init(&p, ctx_now(), l3);
	trace_begin(ctx, &p, TRACE_INGRESS | (l3 ? 0 : TRACE_AT_LAYER3));
	v = parse(ctx, &p, l3);
	if (IS_SPECIAL)
		p.priority_tag = ctx->cb[0];
	/* done before a packet is handed over */
	if (!IS_SPECIAL && unlikely(ports_attached) &&
	    port_apply(ctx, &p, v) == VERDICT_DROP) {
		v = VERDICT_DROP;
	} else if (likely(v == VERDICT_CONTINUE)) {
		v = balance(ctx, &p, l3);
		if (!ONLY_PROXY &&
		    unlikely(v == VERDICT_PASS && direct_answers))
			v = forward_direct_answer(ctx, &p);
	} else {
		v = handle_other(ctx, &p, v, l3);
	}
	return finish_ingress(ctx, &p, v);
}

/* Handles a leaving packet that may be an answer of an endpoint on this machine. The
 * kernel has routed it already, so it only gets the VIP as its source. It comes from
 * a socket, or has arrived and was forwarded or bridged: netfilter may have
 * redirected the connection, and answers with the endpoint's address. */
static __always_inline enum verdict
translate_local_reply(ctx_t *ctx, struct packet *p, const __u16 l3)
{
	struct connection *c = NULL;
	enum verdict v;

	if (is_foreign_noinline(p))
		return VERDICT_PASS;
	v = connection_track(ctx, p, &c, true);
	if (v == VERDICT_MISS)
		return VERDICT_PASS;
	if (v != VERDICT_CONTINUE || !c) { /* c: verifier: null */
		proxy_hand_over(ctx, p, &v,
				l3 ? TAIL_PROXY_ETHER_OUT :
				     TAIL_PROXY_LAYER3_OUT);
		return v;
	}
	if (unlikely(ipsec_count) && ipsec_stops_local_reply(p, c))
		return drop(p, DROP_IPSEC_POLICY);
	hop_forget_if_old(c, p->now); /* the kernel routes it */
	sctp_list_locally(ctx, p, c);
	if (ONLY_PROXY) {
		v = segment_change(ctx, p, c);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	v = translate(ctx, p, c, l3);
	if (v != VERDICT_CONTINUE)
		return v;
	count(p, c);
	return VERDICT_PASS;
}

/* Translates later fragments and ICMP errors of endpoints on this machine. */
__noinline enum verdict translate_local_related(ctx_t *ctx, struct packet *p)
{
	struct connection *c = NULL;
	enum verdict v;

	if (!p)
		return VERDICT_DROP;
	v = related_find_connection(ctx, p, &c);
	if (v != VERDICT_CONTINUE || !c)
		return v;
	if (!p->later_fragment)
		return VERDICT_PASS;
	if (unlikely(ipsec_count) && ipsec_stops_local_reply(p, c))
		return drop(p, DROP_IPSEC_POLICY);
	hop_forget_if_old(c, p->now);
	c->seen = p->now;
	v = translate_fragment(ctx, p, c);
	if (v != VERDICT_CONTINUE)
		return v;
	count(p, c);
	return VERDICT_PASS;
}

static __always_inline int handle_egress(ctx_t *ctx, __u16 l3)
{
	struct packet p;
	enum verdict v;

	if (ctx_is_redirected(ctx) || ctx_is_tagged(ctx))
		return TC_NEXT;
	packet_init(&p, ctx_now(), l3);
	trace_begin(ctx, &p, TRACE_EGRESS | (l3 ? 0 : TRACE_AT_LAYER3));
	v = parse_ip(ctx, &p, l3);
	sctp_hand_over(ctx, &p, v,
		       l3 ? TAIL_SCTP_ETHER_OUT : TAIL_SCTP_LAYER3_OUT);
	if (v == VERDICT_CONTINUE)
		v = translate_local_reply(ctx, &p, l3);
	else if (!IS_SPECIAL && v == VERDICT_UNCOMMON)
		v = translate_local_related(ctx, &p);
	if (v == VERDICT_ANSWER) /* no answer to this machine itself */
		v = VERDICT_DROP;
	return finish(ctx, &p, v);
}

/* The programs at egress, attached while an endpoint is on this machine: for
 * interfaces with Ethernet headers, and for those without a link-layer
 * header. */
SEC("tc")
int loxilb_ether_out(struct __sk_buff *ctx)
{
	return handle_egress(ctx, ETH_HLEN);
}

SEC("tc")
int loxilb_layer3_out(struct __sk_buff *ctx)
{
	return handle_egress(ctx, 0);
}

/* The programs at ingress: for interfaces with Ethernet headers. */
SEC("tc")
int loxilb_ether(struct __sk_buff *ctx)
{
	return ONLY_QUIC ? handle_quic(ctx) : handle_ingress(ctx, ETH_HLEN);
}

/* For interfaces without a link-layer header: tun, wireguard. */
SEC("tc")
int loxilb_layer3(struct __sk_buff *ctx)
{
	return ONLY_QUIC ? handle_quic(ctx) : handle_ingress(ctx, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
