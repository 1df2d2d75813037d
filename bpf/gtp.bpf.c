// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * gtp.bpf.c - takes the packets of mobile users out of their GTP-U tunnels (3GPP TS
 * 29.281), and puts the answers back, for the destinations that classifiers name: an
 * uplink classifier (TS 23.501 section 5.6.4). This machine is on the way between the
 * base station and the user plane function; all other packets go on.
 *
 *	uplink    at each interface, before the packet path: a tunnel's packet from its user
 *	          to a classified address loses its outer header, and the packet path
 *	          balances or routes it
 *	downlink  at the end of the pair of interfaces to which routes lead users' packets:
 *	          one from a classified address gets the outer header of the user plane
 *	          function
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "decap/outer_header.h"
#include "gtp/header.h"
#include "packet/address.h"
#include "packet/checksum.h"
#include "packet/ctx.h"

#define TC_NEXT (-1)
#define TC_SHOT 2
#define AF_INET 2

struct gtp_tunnel {
	struct ip_addr core; /* the user plane function's address */
	__u32 teid; /* host byte order */
	__u32 unused;
};

/* A tunnel's end at the core -> the user whose packets come by it. Written by user. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, struct gtp_tunnel);
	__type(value, struct ip_addr);
} gtp_users SEC(".maps");

struct gtp_class {
	struct ip_addr user;
	struct ip_addr peer;
};

/* What the answers' outer header has. */
struct gtp_downlink {
	__be32 from; /* the user plane function */
	__be32 to; /* the base station */
	__u32 teid; /* of the tunnel's end there, host byte order */
	__u32 qfi; /* the QoS flow, 0 to 63 */
};

/* A user and an address that is classified for it -> the tunnel of its answers. Written
 * by user. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct gtp_class);
	__type(value, struct gtp_downlink);
} gtp_classes SEC(".maps");

enum gtp_count {
	GTP_TAKEN, /* taken out of its tunnel */
	GTP_FORGED, /* left alone: the tunnel's user has another address */
	GTP_SENT, /* put into a tunnel */
	GTP_UNCLASSIFIED, /* dropped: to a user, from an address without classifier */
	GTP_CONGESTION, /* dropped: congestion occurred, but the sender does not understand the mark (RFC 6040) */
	GTP_FAILED, /* dropped: no route to the base station, no memory, or a header that was never whole */
	GTP_COUNTS
};

/* enum gtp_count -> packets, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTP_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} gtp_counts SEC(".maps");

static __always_inline int gtp_count(__u32 what, int verdict)
{
	__u64 *n = bpf_map_lookup_elem(&gtp_counts, &what);

	if (n)
		(*n)++;
	return verdict;
}

/* Reads the addresses of an IP packet. Returns false if its header is not whole, or too short. */
static __always_inline bool inner_addresses(ctx_t *ctx, __u32 at, bool ipv6,
					    struct ip_addr *from,
					    struct ip_addr *to)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;

	if (ipv6) {
		ip6 = ctx_header(ctx, at, sizeof(*ip6));
		if (!ip6)
			return false;
		__builtin_memcpy(from, &ip6->saddr, 16);
		__builtin_memcpy(to, &ip6->daddr, 16);
		return !is_mapped_ipv4(from) && !is_mapped_ipv4(to);
	}
	ip = ctx_header(ctx, at, sizeof(*ip));
	if (!ip || ip->ihl < sizeof(*ip) / 4)
		return false;
	map_ipv4(from, ip->saddr);
	map_ipv4(to, ip->daddr);
	return true;
}

/* Returns DSCP and ECN of an IP packet with a whole header. */
static __always_inline __u8 inner_tos(ctx_t *ctx, __u32 at, bool ipv6)
{
	__u8 *ip = ctx_header(ctx, at, 2);

	if (!ip)
		return 0;
	return ipv6 ? ip[0] << 4 | ip[1] >> 4 : ip[1];
}

/* Combines the outer ECN field with that of the packet at an offset. Returns false if
 * the packet must be dropped. */
static __always_inline bool inner_set_ecn(ctx_t *ctx, __u32 at, bool ipv6,
					  __u8 outer)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;

	if (ipv6) {
		ip6 = ctx_header(ctx, at, sizeof(*ip6));
		return ip6 && ecn_write_ipv6(ctx, ip6, outer);
	}
	ip = ctx_header(ctx, at, sizeof(*ip));
	return ip && ecn_write_ipv4(ip, outer);
}

/* Takes a packet out of its tunnel. */
static __always_inline int gtp_take(ctx_t *ctx, __u32 l3)
{
	struct outer o = { .l3 = l3 };
	struct gtp_tunnel tunnel = {};
	struct gtp_class class = {};
	struct ip_addr *user;

	if (!ctx_is_for_us(ctx) || !outer_ip(ctx, &o) ||
	    o.protocol != IPPROTO_UDP || o.ipv6 ||
	    !gtp_holds(ctx, &o, &tunnel.teid))
		return TC_NEXT;
	tunnel.core = o.daddr;
	user = bpf_map_lookup_elem(&gtp_users, &tunnel);
	if (!user || !inner_addresses(ctx, l3 + o.size, o.inner_ipv6,
				      &class.user, &class.peer))
		return TC_NEXT;
	if (!same_addr(user, &class.user))
		return gtp_count(GTP_FORGED, TC_NEXT);
	if (!bpf_map_lookup_elem(&gtp_classes, &class))
		return TC_NEXT;
	if (!inner_set_ecn(ctx, l3 + o.size, o.inner_ipv6, o.tos))
		return gtp_count(GTP_CONGESTION, TC_SHOT);
	if (!outer_remove(ctx, &o))
		return gtp_count(GTP_FAILED, TC_SHOT);
	return gtp_count(GTP_TAKEN, TC_NEXT);
}

SEC("tc")
int loxilb_gtp_ether(struct __sk_buff *ctx)
{
	return gtp_take(ctx, ETH_HLEN);
}

SEC("tc")
int loxilb_gtp_layer3(struct __sk_buff *ctx)
{
	return gtp_take(ctx, 0);
}

/* Returns the interface by which packets to an IPv4 address leave, or 0. */
static __noinline __u32 gtp_way(ctx_t *ctx, __be32 to)
{
	struct bpf_fib_lookup fib = { .family = AF_INET,
				      .ifindex = ctx->ifindex,
				      .ipv4_dst = to };
	long code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);

	return code == BPF_FIB_LKUP_RET_SUCCESS ||
			       code == BPF_FIB_LKUP_RET_NO_NEIGH ?
		       fib.ifindex :
		       0;
}

SEC("tc")
int loxilb_gtp_send(struct __sk_buff *ctx)
{
	bool ipv6 = ctx->protocol == bpf_htons(ETH_P_IPV6);
	struct gtp_class class = {};
	struct gtp_downlink *d;
	__u32 way;

	if (!ipv6 && ctx->protocol != bpf_htons(ETH_P_IP))
		return TC_SHOT; /* ARP and the like: nobody is here */
	if (!inner_addresses(ctx, ETH_HLEN, ipv6, &class.peer, &class.user))
		return gtp_count(GTP_FAILED, TC_SHOT);
	d = bpf_map_lookup_elem(&gtp_classes, &class);
	if (!d)
		return gtp_count(GTP_UNCLASSIFIED, TC_SHOT);
	way = gtp_way(ctx, d->to);
	if (!way || !gtp_put(ctx, d->from, d->to, d->teid, d->qfi,
			     inner_tos(ctx, ETH_HLEN, ipv6)))
		return gtp_count(GTP_FAILED, TC_SHOT);
	return gtp_count(GTP_SENT, bpf_redirect_neigh(way, NULL, 0, 0));
}

/* Keeps the enum in the object's BTF: the code uses only its values. */
const struct {
	enum gtp_count count;
} gtp_enums = {};

char _license[] SEC("license") = "Dual BSD/GPL";
