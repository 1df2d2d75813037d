// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * gtp.bpf.c - decapsulates GTP-U packets of mobile users (3GPP TS 29.281) to the
 * destinations that classifiers name, and encapsulates the answers: an uplink
 * classifier (TS 23.501 section 5.6.4). This machine is on the path between the base
 * station and the user plane function, and forwards all other packets.
 *
 *	uplink    at each interface, before the packet path: a tunnel's packet from its user
 *	          to a classified address loses its outer header, and the packet path
 *	          balances or routes it
 *	downlink  at the end of the pair of interfaces to which routes lead users' packets:
 *	          one from a classified address, or an ICMP error about a packet to it, gets
 *	          the outer header of the user plane function; others take the route that
 *	          they would have without a session
 *
 * The uplink program also prepares packets in tunnels to services with ALGORITHM_N3
 * (gtp/source_port.h).
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "decap/outer_header.h"
#include "gtp/header.h"
#include "gtp/put.h"
#include "gtp/source_port.h"
#include "packet/address.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/icmp_types.h"

#define TC_NEXT (-1)
#define TC_SHOT 2
#define AF_INET 2
#define AF_INET6 10
#define IP6_MULTICAST 0xff000000 /* the first bits of addresses */
#define GTP_COUNTS_ROOM \
	16 /* rows of the pinned map, with room for further outcomes */

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
	GTP_TAKEN, /* decapsulated */
	GTP_FORGED, /* left alone: the tunnel's user has another address */
	GTP_SENT, /* put into a tunnel */
	GTP_UNCLASSIFIED, /* dropped: to a user, from an address without classifier, and without another route */
	GTP_CONGESTION, /* dropped: congestion occurred, but the sender does not understand the mark (RFC 6040) */
	GTP_FAILED, /* dropped: no route to the base station, no memory, or a header that was never whole */
	GTP_ROUTED, /* to a user, from an address without classifier: sent along another route */
	GTP_BALANCED, /* in a tunnel to a service with ALGORITHM_N3 */
	GTP_COUNTS
};

/* enum gtp_count -> packets, per CPU. Pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTP_COUNTS_ROOM);
	__type(key, __u32);
	__type(value, __u64);
} gtp_counts SEC(".maps");

/* The first interface of the pair: packets must not go there again. Written by user. */
volatile __u32 gtp_near = 0;

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

/* Combines the outer ECN field with the field of the packet at an offset. Returns false
 * if the packet must be dropped. */
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

/* Decapsulates a packet. Returns TC_NEXT and leaves *taken unchanged if it stays in its
 * tunnel. */
static __always_inline int gtp_decapsulate(ctx_t *ctx, __u32 l3, bool *taken)
{
	struct outer o = { .l3 = l3 };
	struct gtp_tunnel tunnel = {};
	struct gtp_class class = {};
	struct ip_addr *user;

	if (!outer_ip(ctx, &o) || o.protocol != IPPROTO_UDP ||
	    !gtp_has_packet(ctx, &o, &tunnel.teid))
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
	*taken = true;
	if (!inner_set_ecn(ctx, l3 + o.size, o.inner_ipv6, o.tos))
		return gtp_count(GTP_CONGESTION, TC_SHOT);
	if (!outer_remove(ctx, &o))
		return gtp_count(GTP_FAILED, TC_SHOT);
	return gtp_count(GTP_TAKEN, TC_NEXT);
}

static __always_inline int gtp_uplink(ctx_t *ctx, __u32 l3)
{
	bool taken = false;
	int verdict, set;

	if (!ctx_is_for_us(ctx))
		return TC_NEXT;
	verdict = gtp_decapsulate(ctx, l3, &taken);
	if (taken)
		return verdict;
	set = gtp_set_source(ctx, l3);
	if (!set)
		return TC_NEXT;
	return set > 0 ? gtp_count(GTP_BALANCED, TC_NEXT) :
			 gtp_count(GTP_FAILED, TC_SHOT);
}

SEC("tc")
int loxilb_gtp_ether(struct __sk_buff *ctx)
{
	return gtp_uplink(ctx, ETH_HLEN);
}

SEC("tc")
int loxilb_gtp_layer3(struct __sk_buff *ctx)
{
	return gtp_uplink(ctx, 0);
}

/* Looks up a route, as from this interface: rules that lead packets to users here do not
 * apply (internal/kernel/netdev/objects/gtplink.go). Returns false if there is none. */
static __noinline bool gtp_route(ctx_t *ctx, const struct ip_addr *from,
				 const struct ip_addr *to,
				 struct bpf_fib_lookup *fib)
{
	long code;

	fib->ifindex = ctx->ifindex;
	if (is_mapped_ipv4(to)) {
		fib->family = AF_INET;
		fib->ipv4_src = from->word[3];
		fib->ipv4_dst = to->word[3];
	} else {
		fib->family = AF_INET6;
		__builtin_memcpy(fib->ipv6_src, from, 16);
		__builtin_memcpy(fib->ipv6_dst, to, 16);
	}
	code = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	return (code == BPF_FIB_LKUP_RET_SUCCESS ||
		code == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       fib->ifindex != ctx->ifindex && fib->ifindex != gtp_near;
}

/* Sends a packet to the next hop that a lookup has found. */
static __always_inline int gtp_redirect(const struct bpf_fib_lookup *fib)
{
	struct bpf_redir_neigh nh = { .nh_family = fib->family };

	__builtin_memcpy(nh.ipv6_nh, fib->ipv6_dst, 16);
	return bpf_redirect_neigh(fib->ifindex, &nh, sizeof(nh), 0);
}

/* Returns the offset of what an ICMP error quotes; 0: the packet is none. */
static __always_inline __u32 gtp_quote(ctx_t *ctx, bool ipv6)
{
	struct ipv6hdr *ip6;
	__u32 at = ETH_HLEN;
	struct iphdr *ip;
	__u8 *type;

	if (ipv6) {
		ip6 = ctx_header(ctx, at, sizeof(*ip6));
		if (!ip6 || ip6->nexthdr != IPPROTO_ICMPV6)
			return 0;
		at += sizeof(*ip6);
	} else {
		ip = ctx_header(ctx, at, sizeof(*ip));
		if (!ip || ip->protocol != IPPROTO_ICMP ||
		    ip->frag_off & IP_OFFSET_MASK)
			return 0;
		at += ip->ihl * 4;
	}
	type = ctx_header(ctx, at, sizeof(struct icmp_header));
	return type && icmp_is_error(ipv6, *type) ?
		       at + sizeof(struct icmp_header) :
		       0;
}

/* Finds the tunnel of a packet to a user. An ICMP error takes that of the packet that it quotes:
 * the router that sends it has no classifier. Otherwise, the user would not learn the path's MTU,
 * and its uploads would stop. */
static __noinline struct gtp_downlink *
gtp_find_downlink(ctx_t *ctx, bool ipv6, const struct gtp_class *class)
{
	struct gtp_downlink *d = bpf_map_lookup_elem(&gtp_classes, class);
	struct gtp_class quoted = {};
	__u32 at;

	if (d)
		return d;
	at = gtp_quote(ctx, ipv6);
	if (!at ||
	    !inner_addresses(ctx, at, ipv6, &quoted.user, &quoted.peer) ||
	    !same_addr(&quoted.user, &class->user))
		return NULL;
	return bpf_map_lookup_elem(&gtp_classes, &quoted);
}

/* Sends a packet to a user that no classifier is for: as without a session. */
static __always_inline int gtp_send_unclassified(ctx_t *ctx,
						 const struct gtp_class *class)
{
	struct bpf_fib_lookup fib = {};

	if (!gtp_route(ctx, &class->peer, &class->user, &fib))
		return gtp_count(GTP_UNCLASSIFIED, TC_SHOT);
	return gtp_count(GTP_ROUTED, gtp_redirect(&fib));
}

SEC("tc")
int loxilb_gtp_send(struct __sk_buff *ctx)
{
	bool ipv6 = ctx->protocol == bpf_htons(ETH_P_IPV6);
	struct bpf_fib_lookup fib = {};
	struct gtp_class class = {};
	struct gtp_downlink *d;

	if (!ipv6 && ctx->protocol != bpf_htons(ETH_P_IP))
		return TC_SHOT; /* ARP and others: no host answers them here */
	if (!inner_addresses(ctx, ETH_HLEN, ipv6, &class.peer, &class.user))
		return gtp_count(GTP_FAILED, TC_SHOT);
	if ((class.user.word[0] & bpf_htonl(IP6_MULTICAST)) ==
	    bpf_htonl(IP6_MULTICAST))
		return TC_SHOT; /* neighbour discovery: no host answers it here */
	d = gtp_find_downlink(ctx, ipv6, &class);
	if (!d)
		return gtp_send_unclassified(ctx, &class);
	if (!gtp_route(ctx, &d->from, &d->to, &fib) ||
	    !gtp_put(ctx, d, inner_tos(ctx, ETH_HLEN, ipv6)))
		return gtp_count(GTP_FAILED, TC_SHOT);
	return gtp_count(GTP_SENT, gtp_redirect(&fib));
}

/* Keeps the enum in the object's BTF: the code uses only its values. */
const struct {
	enum gtp_count count;
} gtp_enums = {};

char _license[] SEC("license") = "Dual BSD/GPL";
