/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * attached.h - polices and mirrors packets of some services, clients, firewall rules
 * and interfaces.
 *
 * An entry of a connection with attachments has HOP_ATTACHED, and its packets leave the
 * common path (hop.h); other connections pay nothing. The bit is set or cleared when
 * the entry looks up its next hop, which every entry does once after a change of
 * attachments (epoch.h). The attachments themselves are looked up for each packet,
 * except for those of the firewall rule that decided the connection, which is part of
 * its next hop.
 */
#ifndef LOXILB_ATTACHED_H
#define LOXILB_ATTACHED_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "limit/attached_port.h"
#include "limit/policer.h"
#include "observe/mirror.h"
#include "packet/address.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/protocol.h"
#include "table/rows.h"
#include "table/state.h"

/* Whether services or clients have attachments. Written by user. */
volatile __u32 flows_attached SEC(".data.runtime") = 0;

/* Whether firewall rules have attachments. */
volatile __u32 rules_attached SEC(".data.runtime") = 0;

/* The drop precedence of assured forwarding (RFC 2597 section 6) is the color of a
 * packet. */
#define DSCP_SHIFT 2
#define AF_CLASS(dscp) ((dscp) >> 3)
#define AF_PRECEDENCE(dscp) (((dscp) & 7) >> 1)
#define AF_IS(dscp) \
	(!((dscp) & 1) && AF_CLASS(dscp) >= 1 && AF_CLASS(dscp) <= 4)

/* Returns the traffic class of a packet, 0 if it cannot be read. */
static __always_inline __u8 traffic_class(ctx_t *ctx, const struct packet *p)
{
	__be16 *head = ctx_header(ctx, p->l3, sizeof(*head));

	if (!head)
		return 0;
	return p->ipv6 ? bpf_ntohs(*head) >> 4 : bpf_ntohs(*head);
}

static __always_inline enum color color_of(ctx_t *ctx, const struct packet *p)
{
	__u8 dscp = traffic_class(ctx, p) >> DSCP_SHIFT;

	if (!AF_IS(dscp))
		return COLOR_GREEN;
	switch (AF_PRECEDENCE(dscp)) {
	case 2:
		return COLOR_YELLOW;
	case 3:
		return COLOR_RED;
	default:
		return COLOR_GREEN;
	}
}

/* The size of a packet on the wire. If it is segmented later, each segment has the
 * headers. */
struct wire_size {
	__u32 bytes;
	__u32 packets;
};

static __always_inline void wire_size(ctx_t *ctx, const struct packet *p,
				      struct wire_size *size)
{
	__u32 headers;

	size->bytes = p->length;
	size->packets = ctx->gso_segs;
	if (likely(size->packets <= 1)) {
		size->packets = 1;
		return;
	}
	if (size->packets > MAX_SEGMENTS)
		size->packets = MAX_SEGMENTS;
	headers = p->length - protocol_payload(p);
	if (headers < p->length)
		size->bytes += (size->packets - 1) * headers;
}

/* Returns the client of an entry's packet. */
static __always_inline const struct ip_addr *
client_of(const struct packet *p, const struct connection *c)
{
	if (c->flags & CONN_REPLY_DIRECTION)
		return &c->daddr;
	return c->traits & CONN_ONE_WAY ? &c->saddr : &p->tuple.saddr;
}

/* Returns the attachments of a client. The row of IPv4 may be empty, to hide rows of
 * IPv6. */
static __always_inline struct attachments *
source_attachments(const struct ip_addr *client)
{
	struct attached_source key = { .prefix_length = 128, .addr = *client };
	struct attachments *a = bpf_map_lookup_elem(&attached_sources, &key);

	return a && (a->policers[0] | a->policers[1] | a->mirrors[0] |
		     a->mirrors[1]) ?
		       a :
		       NULL;
}

static __always_inline struct attachments *
service_attachments(const struct connection *c)
{
	__u32 id = c->endpoint;
	struct endpoint *ep = endpoint_find(id);
	__u32 service;

	if (!ep)
		return NULL;
	service = ep->service;
	return bpf_map_lookup_elem(&attached_services, &service);
}

/* Returns the attachments of the rule that decided the packet or its connection. */
static __always_inline struct attachments *
rule_attachments(const struct packet *p)
{
	__u32 counter = p->rule;

	if (likely(!counter))
		return NULL;
	counter--;
	return bpf_map_lookup_elem(&attached_rules, &counter);
}

/* Records in an entry whether its packets are policed or mirrored. word: its state.
 * Global (verifier: globals), so it returns a value. */
__noinline __maybe_unused int attached_record(const struct packet *p,
					      struct connection *c, __u32 word)
{
	const __u32 bit = (__u32)HOP_ATTACHED << STATE_HOP_SHIFT;
	bool has;

	if (!p || !c) /* verifier: null */
		return 0;
	has = p->rule ||
	      (flows_attached &&
	       (source_attachments(client_of(p, c)) || service_attachments(c)));
	if (has != !!(word & bit))
		state_change(c, word, has ? 0 : bit, has ? bit : 0);
	return 0;
}

static __always_inline bool is_ip(ctx_t *ctx, const struct packet *p)
{
	__be16 type = ctx_ethertype(ctx, p->l3);

	return type == bpf_htons(ETH_P_IP) || type == bpf_htons(ETH_P_IPV6);
}

/* Returns the key for a direction. Both are read, since the verifier does not follow an index into
 * a row. */
static __always_inline __u64 direction_key(const __u64 keys[2], bool reply)
{
	__u64 towards = *(const volatile __u64 *)&keys[0],
	      back = *(const volatile __u64 *)&keys[1];

	return reply ? back : towards;
}

/* Polices a packet. Returns whether it may pass, and sets *color to its new color. */
static __always_inline bool police(const struct attachments *a, bool reply,
				   const struct wire_size *size,
				   enum color *color)
{
	__u64 key = direction_key(a->policers, reply);

	if (!key)
		return true;
	*color = policer_color(key, size->bytes, size->packets, *color);
	return *color != COLOR_RED;
}

/* Mirrors and polices a packet of an entry with HOP_ATTACHED, unchanged since its
 * arrival: copies include packets that are dropped. DROP: it is red. held: the kernel
 * already knows where the packet goes, and mirroring would change that. ICMP errors
 * pass: they are few, and count for no rate. Global (verifier: globals). */
__noinline __maybe_unused enum verdict
attached_apply(ctx_t *ctx, struct packet *p, struct connection *c, bool held)
{
	const struct attachments *source, *service, *rule;
	struct wire_size size;
	enum color color;
	bool reply;

	if (!p || !c) /* verifier: null */
		return VERDICT_DROP;
	if (p->icmp_error)
		return VERDICT_CONTINUE;
	reply = c->flags & CONN_REPLY_DIRECTION;
	source = source_attachments(client_of(p, c));
	service = service_attachments(c);
	rule = rule_attachments(p);
	p->rule = 0;
	if (source && !held)
		mirror_copy(ctx, direction_key(source->mirrors, reply));
	if (service && !held)
		mirror_copy(ctx, direction_key(service->mirrors, reply));
	if (rule && !held)
		mirror_copy(ctx, direction_key(rule->mirrors, reply));
	wire_size(ctx, p, &size);
	color = color_of(ctx, p);
	if ((source && !police(source, reply, &size, &color)) ||
	    (service && !police(service, reply, &size, &color)) ||
	    (rule && !police(rule, reply, &size, &color)))
		return drop(p, DROP_POLICED);
	return VERDICT_CONTINUE;
}

/* Mirrors and polices a packet without a connection that a rule has decided. v: its
 * verdict; a dropped packet is only mirrored. Global (verifier: globals). */
__noinline __maybe_unused enum verdict rule_apply(ctx_t *ctx, struct packet *p,
						  enum verdict v)
{
	const struct attachments *a;
	struct wire_size size;
	enum color color;

	if (!p) /* verifier: null */
		return VERDICT_DROP;
	a = rule_attachments(p);
	p->rule = 0;
	if (!a)
		return v;
	mirror_copy(ctx, direction_key(a->mirrors, false));
	if (v == VERDICT_DROP)
		return v;
	wire_size(ctx, p, &size);
	color = color_of(ctx, p);
	return police(a, false, &size, &color) ? v : drop(p, DROP_POLICED);
}

/* Mirrors and polices a packet that has arrived at an interface, whether or not it is
 * ours. parsed: the result of parse(), PASS if it does not parse the packet to the
 * end. DROP: it is red; a packet other than IP never is. Global (verifier: globals). */
__noinline __maybe_unused enum verdict port_apply(ctx_t *ctx, struct packet *p,
						  enum verdict parsed)
{
	const struct attachments *a = port_attachments(ctx_interface(ctx));
	struct wire_size size = { .packets = 1 };
	enum color color = COLOR_GREEN;

	if (!p || !a)
		return VERDICT_CONTINUE;
	mirror_copy(ctx, direction_key(a->mirrors, false));
	if (!is_ip(ctx, p))
		return VERDICT_CONTINUE;
	if (parsed == VERDICT_CONTINUE) {
		wire_size(ctx, p, &size);
		color = color_of(ctx, p);
	} else if (ctx_length(ctx) > p->l3) {
		size.bytes = ctx_length(ctx) - p->l3;
	}
	if (!police(a, false, &size, &color))
		return drop(p, DROP_POLICED);
	return VERDICT_CONTINUE;
}

#endif
