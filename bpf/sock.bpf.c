// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * sock.bpf.c - cgroup hooks that connect sockets of this machine from a VIP to
 * an endpoint.
 *
 *	connect, sendmsg      the endpoint's address replaces the VIP
 *	recvmsg, getpeername  the VIP replaces the endpoint's address
 *	sock_release          the socket is closed: one connection less
 *
 * The hooks see the sockets of all network namespaces of the machine, and
 * handle only those of the load balancer's own. docs/adr/0013-own-host.md has
 * the alternatives.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "conntrack/conntrack.h"
#include "host/sock.h"
#include "packet/packet.h"

/* Return codes. With SOCK_REFUSE the system call returns the error that is
 * set. */
#define SOCK_REFUSE 0
#define SOCK_ALLOW 1

#define AF_INET6 10

#define MAX_ERRNO 4095

struct bpf_iter_meta;
struct bpf_map;

/* Cookie of the load balancer's network namespace. */
const volatile __u64 own_namespace = 0;

/* Reads the destination of the system call into the packet's tuple. Returns false if
 * the socket is not balanced. */
static __always_inline bool sock_read_destination(struct bpf_sock_addr *ctx,
						  struct packet *p)
{
	if (bpf_get_netns_cookie(ctx) != own_namespace)
		return false;
	if (ctx->protocol != IPPROTO_TCP && ctx->protocol != IPPROTO_UDP)
		return false;
	p->tuple.protocol = ctx->protocol;
	p->tuple.dport = ctx->user_port;
	p->now = (__u32)bpf_jiffies64();
	return true;
}

static __always_inline bool sock_read_destination4(struct bpf_sock_addr *ctx,
						   struct packet *p)
{
	if (!sock_read_destination(ctx, p))
		return false;
	map_ipv4(&p->tuple.daddr, ctx->user_ip4);
	return true;
}

/* An IPv6 socket may name a mapped IPv4 address, which is an IPv4 address in
 * our maps. */
static __always_inline bool sock_read_destination6(struct bpf_sock_addr *ctx,
						   struct packet *p)
{
	if (!sock_read_destination(ctx, p))
		return false;
	p->tuple.daddr.word[0] = ctx->user_ip6[0];
	p->tuple.daddr.word[1] = ctx->user_ip6[1];
	p->tuple.daddr.word[2] = ctx->user_ip6[2];
	p->tuple.daddr.word[3] = ctx->user_ip6[3];
	p->ipv6 = !is_mapped_ipv4(&p->tuple.daddr);
	return true;
}

static __always_inline void sock_write_destination4(struct bpf_sock_addr *ctx,
						    const struct packet *p)
{
	ctx->user_ip4 = p->tuple.daddr.word[3];
	ctx->user_port = p->tuple.dport;
}

static __always_inline void sock_write_destination6(struct bpf_sock_addr *ctx,
						    const struct packet *p)
{
	ctx->user_ip6[0] = p->tuple.daddr.word[0];
	ctx->user_ip6[1] = p->tuple.daddr.word[1];
	ctx->user_ip6[2] = p->tuple.daddr.word[2];
	ctx->user_ip6[3] = p->tuple.daddr.word[3];
	ctx->user_port = p->tuple.dport;
}

/* bpf_set_retval() with a 64-bit parameter. Linux 7.3 requires -4095 to 0 in the
 * whole register, and an int is passed with zeros in the upper half. */
static long (*const sock_set_retval)(__s64 retval) = (void *)
	BPF_FUNC_set_retval;

static __always_inline int sock_fail(int err)
{
	__s64 retval = err;

	asm volatile("" : "+r"(retval)); /* verifier: bounds */
	if (retval < -MAX_ERRNO || retval > 0)
		retval = -EPERM;
	sock_set_retval(retval);
	return SOCK_REFUSE;
}

/* Chooses an endpoint for connect(). The new flow, or none, replaces the flow of an
 * earlier connect(). */
static __noinline int sock_connect(struct bpf_sock_addr *ctx, struct packet *p)
{
	struct sock_flow flow = {}, old;
	struct bpf_sock *sk = ctx->sk;
	struct sock_request request = {
		.cookie = bpf_get_socket_cookie(ctx),
		.both = ctx->user_family == AF_INET6,
	};
	struct sock_flows *s;
	int err;

	if (!sk)
		return SOCK_ALLOW;
	request.mark = sk->mark;
	s = bpf_sk_storage_get(&sock_flows, sk, NULL, 0);
	err = sock_new_flow(p, &request, &flow);
	if (!err && !s)
		s = bpf_sk_storage_get(&sock_flows, sk, NULL,
				       BPF_SK_STORAGE_GET_F_CREATE);
	if (!err && !s)
		return sock_fail(-ENOMEM);
	if (s) {
		if (flow.used)
			sock_count(flow.endpoint);
		bpf_spin_lock(&s->lock);
		old = s->connected;
		s->connected = flow;
		bpf_spin_unlock(&s->lock);
		sock_uncount(&old);
	}
	if (err)
		return err == -ENOENT ? SOCK_ALLOW : sock_fail(err);
	p->tuple.daddr = flow.addr;
	p->tuple.dport = flow.port;
	return SOCK_ALLOW;
}

/* Chooses an endpoint for the destination of a datagram. */
static __noinline int sock_send(struct bpf_sock_addr *ctx, struct packet *p)
{
	struct sock_flow flow = {}, old;
	struct bpf_sock *sk = ctx->sk;
	struct sock_request request = { .cookie = bpf_get_socket_cookie(ctx) };
	struct sock_flows *s;
	int err;

	if (!sk)
		return SOCK_ALLOW;
	request.mark = sk->mark;
	s = bpf_sk_storage_get(&sock_flows, sk, NULL, 0);
	if (!s || !sock_find_flow(s, p, &flow)) {
		err = sock_new_flow(p, &request, &flow);
		if (err)
			return err == -ENOENT ? SOCK_ALLOW : sock_fail(err);
		if (!s)
			s = bpf_sk_storage_get(&sock_flows, sk, NULL,
					       BPF_SK_STORAGE_GET_F_CREATE);
		if (!s)
			return sock_fail(-ENOMEM);
		sock_count(flow.endpoint);
		sock_store_flow(s, &flow, &old);
		sock_uncount(&old);
	}
	p->tuple.daddr = flow.addr;
	p->tuple.dport = flow.port;
	return SOCK_ALLOW;
}

static __noinline void sock_show_vip(struct bpf_sock_addr *ctx,
				     struct packet *p)
{
	struct bpf_sock *sk = ctx->sk;
	struct sock_flows *s;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&sock_flows, sk, NULL, 0);
	if (s)
		sock_rewrite_to_vip(s, p);
}

/* Handles system calls that return the address of the peer. */
static __always_inline int sock_show_vip4(struct bpf_sock_addr *ctx)
{
	struct packet p = {};

	if (!sock_read_destination4(ctx, &p))
		return SOCK_ALLOW;
	sock_show_vip(ctx, &p);
	sock_write_destination4(ctx, &p);
	return SOCK_ALLOW;
}

static __always_inline int sock_show_vip6(struct bpf_sock_addr *ctx)
{
	struct packet p = {};

	if (!sock_read_destination6(ctx, &p))
		return SOCK_ALLOW;
	sock_show_vip(ctx, &p);
	sock_write_destination6(ctx, &p);
	return SOCK_ALLOW;
}

SEC("cgroup/connect4")
int loxilb_connect4(struct bpf_sock_addr *ctx)
{
	struct packet p = {};
	int allow;

	if (!sock_read_destination4(ctx, &p))
		return SOCK_ALLOW;
	allow = sock_connect(ctx, &p);
	sock_write_destination4(ctx, &p);
	return allow;
}

SEC("cgroup/connect6")
int loxilb_connect6(struct bpf_sock_addr *ctx)
{
	struct packet p = {};
	int allow;

	if (!sock_read_destination6(ctx, &p))
		return SOCK_ALLOW;
	allow = sock_connect(ctx, &p);
	sock_write_destination6(ctx, &p);
	return allow;
}

SEC("cgroup/sendmsg4")
int loxilb_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct packet p = {};
	int allow;

	if (!sock_read_destination4(ctx, &p))
		return SOCK_ALLOW;
	allow = sock_send(ctx, &p);
	sock_write_destination4(ctx, &p);
	return allow;
}

SEC("cgroup/sendmsg6")
int loxilb_sendmsg6(struct bpf_sock_addr *ctx)
{
	struct packet p = {};
	int allow;

	if (!sock_read_destination6(ctx, &p))
		return SOCK_ALLOW;
	allow = sock_send(ctx, &p);
	sock_write_destination6(ctx, &p);
	return allow;
}

SEC("cgroup/recvmsg4")
int loxilb_recvmsg4(struct bpf_sock_addr *ctx)
{
	return sock_show_vip4(ctx);
}

SEC("cgroup/recvmsg6")
int loxilb_recvmsg6(struct bpf_sock_addr *ctx)
{
	return sock_show_vip6(ctx);
}

SEC("cgroup/getpeername4")
int loxilb_getpeername4(struct bpf_sock_addr *ctx)
{
	return sock_show_vip4(ctx);
}

SEC("cgroup/getpeername6")
int loxilb_getpeername6(struct bpf_sock_addr *ctx)
{
	return sock_show_vip6(ctx);
}

SEC("cgroup/sock_release")
int loxilb_sock_release(struct bpf_sock *sk)
{
	struct sock_flows *s;

	if (bpf_get_netns_cookie(sk) != own_namespace)
		return SOCK_ALLOW;
	s = bpf_sk_storage_get(&sock_flows, sk, NULL, 0);
	if (!s)
		return SOCK_ALLOW;
	sock_uncount(&s->connected);
	for (int i = 0; i < SOCK_FLOWS; i++)
		sock_uncount(&s->flows[i]);
	return SOCK_ALLOW;
}

struct sock_common;
struct udp_sock;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
} __attribute__((preserve_access_index));

/* endpoint id -> flows of the existing sockets. Emptied by user, written by
 * loxilb_find_tcp and loxilb_find_udp. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * MAX_SOCKET_ENDPOINTS);
	__type(key, __u32);
	__type(value, __u64);
} sockets_found SEC(".maps");

static __noinline void sock_find(__u32 endpoint, __u32 used)
{
	__u64 none = 0, *n;

	if (!used)
		return;
	bpf_map_update_elem(&sockets_found, &endpoint, &none, BPF_NOEXIST);
	n = bpf_map_lookup_elem(&sockets_found, &endpoint);
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline int sock_find_all(const struct sock_flows *s)
{
	if (!s)
		return 0;
	sock_find(s->connected.endpoint, s->connected.used);
	for (int i = 0; i < SOCK_FLOWS; i++)
		sock_find(s->flows[i].endpoint, s->flows[i].used);
	return 0;
}

/* These visit all sockets of a protocol in the network namespace of the process that reads.
 * An iterator of sock_flows would visit fewer, but some kernels refuse to load it. A TCP
 * socket whose connection is over is not visited, although it may still be open. */
SEC("iter/tcp")
int loxilb_find_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	return sk ? sock_find_all(
			    bpf_sk_storage_get(&sock_flows, sk, NULL, 0)) :
		    0;
}

SEC("iter/udp")
int loxilb_find_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;

	return sk ? sock_find_all(
			    bpf_sk_storage_get(&sock_flows, sk, NULL, 0)) :
		    0;
}

/* Stops counting so many flows (cb[0]) of an endpoint (the mark): their sockets were
 * closed while the hook was not attached. User space runs it on an empty packet. */
SEC("tc")
int loxilb_forget_sockets(struct __sk_buff *ctx)
{
	__u32 endpoint = ctx->mark;
	struct socket_count *n = bpf_map_lookup_elem(&socket_counts, &endpoint);
	struct endpoint_state *s = endpoint_state_find(endpoint);
	__s64 lost = (__s32)ctx->cb[0];

	if (!n)
		return 0;
	__sync_fetch_and_add(&n->open, -lost);
	if (s)
		sock_add(s, -lost);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
