/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * firewall.h - applies firewall rules to packets without a connection, and to
 * connections after the rules have changed.
 *
 * Packets that go to the kernel have no entry in the connection table. Answers to
 * requests of this machine are recognized by its sockets, and no rule drops them.
 */
#ifndef LOXILB_FIREWALL_H
#define LOXILB_FIREWALL_H

#include "conntrack/direct.h"
#include "limit/attached.h"
#include "observe/record.h"
#include "observe/trace_note.h"
#include "packet/ctx.h"
#include "path/fib.h"
#include "path/hop.h"
#include "probe/probe_answers.h"
#include "protocol/protocol.h"
#include "rules/rule.h"
#include "table/rows.h"

#define SOCKET_LISTENS 10 /* TCP_LISTEN */

/* Fills in the tuple for a socket lookup, and returns its size. */
static __always_inline __u32
firewall_socket_tuple(struct bpf_sock_tuple *t,
		      const struct connection_key *key, __be16 sport)
{
	__builtin_memset(t, 0, sizeof(*t));
	if (is_mapped_ipv4(&key->saddr)) {
		t->ipv4.saddr = key->saddr.word[3];
		t->ipv4.daddr = key->daddr.word[3];
		t->ipv4.sport = sport;
		t->ipv4.dport = key->dport;
		return sizeof(t->ipv4);
	}
	__builtin_memcpy(t->ipv6.saddr, &key->saddr, 16);
	__builtin_memcpy(t->ipv6.daddr, &key->daddr, 16);
	t->ipv6.sport = sport;
	t->ipv6.dport = key->dport;
	return sizeof(t->ipv6);
}

/* Returns the state of this machine's socket for segments from a port, 0 if there
 * is none. */
static __noinline __u32 firewall_tcp_state(ctx_t *ctx,
					   const struct connection_key *key,
					   __be16 sport)
{
	struct bpf_sock_tuple t;
	__u32 size = firewall_socket_tuple(&t, key, sport), state;
	struct bpf_sock *sk;

	sk = bpf_skc_lookup_tcp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	state = sk->state;
	bpf_sk_release(sk);
	return state;
}

/* Reports whether a segment belongs to a connection that this machine has opened.
 * Accepted connections use a port at which it listens. */
static __always_inline bool
firewall_is_own_tcp(ctx_t *ctx, const struct connection_key *key)
{
	__u32 state = firewall_tcp_state(ctx, key, key->sport);

	return state && state != SOCKET_LISTENS &&
	       firewall_tcp_state(ctx, key, 0) != SOCKET_LISTENS;
}

/* Reports whether a datagram is for a socket that is connected to its sender, or that
 * has a port assigned by the kernel. */
static __noinline bool firewall_is_own_udp(ctx_t *ctx,
					   const struct connection_key *key)
{
	struct bpf_sock_tuple t;
	__u32 size = firewall_socket_tuple(&t, key, key->sport);
	__u16 port = bpf_ntohs(key->dport);
	const struct host_ports *ports;
	__u64 word = port / 64;
	struct bpf_sock *sk;
	bool connected;

	sk = bpf_sk_lookup_udp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	connected = sk->dst_port && sk->dst_port == key->sport;
	bpf_sk_release(sk);
	if (connected)
		return true;
	ports = kept_ports_get();
	asm volatile("" : "+r"(word)); /* verifier: bounds */
	word &= 1023;
	return ports && ports->bits[word] >> port % 64 & 1;
}

/* Reports whether a packet answers a request of this machine, or of a client of a
 * service in mode dsr: rules do not drop it. */
static __noinline bool firewall_exempts(ctx_t *ctx, const struct packet *p)
{
	struct connection_key key;

	if (p->echo_reply)
		return is_local_address(&p->tuple.daddr);
	key = p->tuple; /* verifier: memory */
	if (probe_answer_find(&key, p->now))
		return true;
	if (direct_answers && direct_find(&p->tuple, p->now))
		return true;
	if (p->tuple.protocol == IPPROTO_TCP)
		return firewall_is_own_tcp(ctx, &p->tuple);
	return p->tuple.protocol == IPPROTO_UDP &&
	       firewall_is_own_udp(ctx, &p->tuple);
}

/* Sends a packet out by another interface. A packet without a link-layer header
 * cannot leave by an interface that needs one. */
static __always_inline enum verdict firewall_redirect(struct packet *p,
						      __u32 ifindex)
{
	__u32 *flags = bpf_map_lookup_elem(&links, &ifindex);

	if (!ifindex || (!p->l3 && !(flags && *flags & LINK_LAYER3)))
		return drop(p, DROP_RULE);
	trace_out(p, ifindex);
	p->action = bpf_redirect(ifindex, 0);
	return VERDICT_REDIRECT;
}

/* Records that the packet gets another source if it opens a connection. */
static __always_inline enum verdict firewall_source(const struct rule *r)
{
	struct opening *o = opening_get();

	if (!o)
		return VERDICT_CONTINUE;
	o->source_of = r->target + 1;
	o->source_by_default = rule_action(r) == RULE_SNAT_DEFAULT;
	return VERDICT_CONTINUE;
}

/* Counts a packet that a rule has decided, and records it if the rule has RULE_RECORD.
 */
static __always_inline void firewall_record(ctx_t *ctx, const struct packet *p,
					    const struct rule *r)
{
	rule_count_hit(r, p);
	if (likely(!(r->action & RULE_RECORD)))
		return;
	if (rule_may_record(r))
		record_packet(ctx, RECORDER_RULES, r->identity, rule_action(r),
			      p->l3 ? 0 : RECORD_LAYER3);
	else
		record_none(RECORDER_RULES);
}

/* Records a rule in a packet, if policers or mirrors are attached to the rule. */
static __always_inline void firewall_record_attached(struct packet *p,
						     const struct rule *r)
{
	__u32 counter = r->counter;

	if (unlikely(rules_attached) &&
	    bpf_map_lookup_elem(&attached_rules, &counter))
		p->rule = counter + 1;
}

/* Polices and mirrors a packet without a connection, if its rule has attachments. */
static __always_inline enum verdict
firewall_finish(ctx_t *ctx, struct packet *p, enum verdict v)
{
	return unlikely(p->rule) ? rule_apply(ctx, p, v) : v;
}

/* Returns the verdict of a rule. CONTINUE: the packet proceeds as if there were no
 * rule. */
static __always_inline enum verdict firewall_verdict(struct packet *p,
						     const struct rule *r)
{
	switch (rule_action(r)) {
	case RULE_DROP:
		return drop(p, DROP_RULE);
	case RULE_TRAP:
		return VERDICT_PASS;
	case RULE_REDIRECT:
		return firewall_redirect(p, r->target);
	case RULE_SNAT:
	case RULE_SNAT_DEFAULT:
		return firewall_source(r);
	default:
		return VERDICT_CONTINUE;
	}
}

/* Applies a rule. CONTINUE: the packet proceeds as if there were no rule. */
static __noinline enum verdict firewall_apply(ctx_t *ctx, struct packet *p,
					      const struct rule *r)
{
	enum verdict v;

	if (rule_action(r) == RULE_DROP && firewall_exempts(ctx, p))
		return VERDICT_CONTINUE;
	firewall_record(ctx, p, r);
	firewall_record_attached(p, r);
	if (r->mark)
		ctx_set_mark(ctx, r->mark);
	v = firewall_verdict(p, r);
	return v == VERDICT_CONTINUE ? v : firewall_finish(ctx, p, v);
}

/* Finds and applies the rule for a packet without a connection. Its ports are parsed,
 * if its protocol has any. Global (verifier: globals). */
__noinline enum verdict firewall_judge(ctx_t *ctx, struct packet *p)
{
	const struct rule *r;

	if (!p) /* verifier: null */
		return VERDICT_DROP;
	/* a first fragment without its ports, which the kernel would reassemble (RFC
	 * 1858) */
	if (p->fragment && p->fault == DROP_MALFORMED)
		return drop(p, DROP_MALFORMED);
	r = rule_find_by_tuple(&p->tuple, ctx_interface(ctx), p->ipv6);
	return r ? firewall_apply(ctx, p, r) : VERDICT_CONTINUE;
}

/* Marks a packet as its rule says, without counting it: a later fragment for the kernel, which
 * must take the route of its first one; or a packet whose service is not known yet. Global
 * (verifier: globals). */
__noinline enum verdict firewall_mark(ctx_t *ctx, struct packet *p)
{
	const struct rule *r;

	if (!p) /* verifier: null */
		return VERDICT_DROP;
	r = rule_find_by_tuple(&p->tuple, ctx_interface(ctx), p->ipv6);
	if (r && r->mark)
		ctx_set_mark(ctx, r->mark);
	return VERDICT_PASS;
}

/* Applies the rules, if there are any, to a packet for the kernel. */
static __always_inline enum verdict firewall_judge_foreign(ctx_t *ctx,
							   struct packet *p)
{
	enum verdict v;

	if (likely(!rule_count))
		return VERDICT_PASS;
	v = firewall_judge(ctx, p);
	return v == VERDICT_CONTINUE ? firewall_finish(ctx, p, VERDICT_PASS) :
				       v;
}

/* Applies the rules to a packet of a protocol without connections. Its tuple has no
 * ports; SCTP has its ports where TCP and UDP have theirs. Global (verifier: globals). */
__noinline enum verdict firewall_judge_other(ctx_t *ctx, struct packet *p)
{
	const struct rule_set *set = rule_set_get();
	struct rule_packet *k = rule_packet_get();
	const struct rule *r;
	enum verdict v;
	__be16 *ports;

	if (!p || !set || !k)
		return VERDICT_PASS;
	rule_put_tuple(k, &p->tuple, ctx_interface(ctx));
	if (p->tuple.protocol == IPPROTO_SCTP) {
		ports = ctx_header(ctx, p->l4, 2 * sizeof(*ports));
		if (ports)
			rule_put_ports(k, ports[0], ports[1]);
	}
	r = rule_find(set, k, p->ipv6);
	if (!r)
		return VERDICT_PASS;
	v = firewall_apply(ctx, p, r);
	return v == VERDICT_CONTINUE ? firewall_finish(ctx, p, VERDICT_PASS) :
				       v;
}

/* Drops a packet whose extension headers hide its protocol and ports, since rules
 * about those cannot be checked. If the first rule that matches is about addresses
 * only and drops it, that rule counts it and mirrors it. Other rules are ignored, as
 * a hidden match might precede them. Global (verifier: globals). */
__noinline enum verdict firewall_judge_unparsed(ctx_t *ctx, struct packet *p)
{
	const struct rule_set *set = rule_set_get();
	struct rule_packet *k = rule_packet_get();
	const struct rule *r;

	if (!p || !set || !k)
		return VERDICT_PASS;
	rule_put_tuple(k, &p->tuple, ctx_interface(ctx));
	r = rule_find(set, k, p->ipv6);
	if (r && rule_action(r) == RULE_DROP)
		return firewall_apply(ctx, p, r);
	return drop(p, DROP_EXTENSION_CHAIN);
}

/* Records in an answer the rule that applies to its client's packets. It is in the row of
 * the next hop that the client's last packet used; after a change of rules or routes, or
 * more than an epoch, that row may belong to another next hop (hop_find.h). */
static __noinline void
firewall_take_rule_of_client(struct packet *p,
			     const struct connection_key *client)
{
	const struct connection *c = entry_find(client);
	const struct hop *w;

	if (!c || p->now - c->seen > HOP_EPOCH_JIFFIES ||
	    !hop_is_current(c, c->seen))
		return;
	w = hop_of(c);
	if (!w)
		return;
	p->rule = w->key.rule;
	p->rules_skipped = false;
}

/* Reports whether rules drop the packet's connection. Checked once after the rules
 * have changed, and whenever the connection's next hop is of an older epoch. Rules
 * about interfaces are checked for the client's packets only, which arrive by that
 * interface. A RST passes, as it may end the connection; if it does not, the next
 * packet is checked. Global (verifier: globals). */
__noinline bool firewall_drops_connection(ctx_t *ctx, struct packet *p,
					  struct connection *c)
{
	const struct rule_set *set = rule_set_get();
	struct connection_key client;
	const struct rule *r;

	if (!p || !c || !set) /* verifier: null */
		return false;
	if (hop_is_current(c, p->now))
		return false;
	p->rules_skipped = true;
	if (p->tcp_flags & TCP_RST)
		return false;
	if (c->flags & CONN_REPLY_DIRECTION) {
		connection_reverse(&client, c, p->tuple.protocol);
		if (set->interfaces) {
			p->rules_skipped = rules_attached != 0;
			if (p->rules_skipped)
				firewall_take_rule_of_client(p, &client);
			return false;
		}
	} else {
		client = p->tuple;
	}
	r = rule_find_by_tuple(&client, ctx_interface(ctx),
			       !is_mapped_ipv4(&client.saddr));
	p->rules_skipped = false;
	if (!r)
		return false;
	firewall_record_attached(p, r);
	if (rule_action(r) != RULE_DROP)
		return false;
	firewall_record(ctx, p, r);
	firewall_finish(ctx, p, VERDICT_DROP);
	return true;
}

#endif
