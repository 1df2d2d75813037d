//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * accept.bpf.c - accepts every TCP connection, over IPv4, and nothing else: a SYN
 * goes back as its SYN+ACK, at whatever address and port, and what follows is
 * dropped. It stands for any number of endpoints whose work is another machine's.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PROTOCOL_TCP 6
#define SEQUENCE 1 /* any */

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed));

static __always_inline void exchange(__u8 *a, __u8 *b, int n)
{
	for (int i = 0; i < n; i++) {
		__u8 x = a[i];

		a[i] = b[i];
		b[i] = x;
	}
}

/* The sums that cover addresses and ports stay, since those change places. The
 * sum of the segment is the interface's to complete (wholeFrames is off). */
SEC("tc")
int accept_connection(struct __sk_buff *skb)
{
	struct frame *f = (void *)(long)skb->data;

	if ((void *)(f + 1) > (void *)(long)skb->data_end ||
	    f->eth.h_proto != bpf_htons(ETH_P_IP) || f->ip.ihl != 5 ||
	    f->ip.protocol != PROTOCOL_TCP)
		return TC_ACT_UNSPEC;
	if (!f->tcp.syn || f->tcp.ack)
		return TC_ACT_SHOT;
	exchange(f->eth.h_source, f->eth.h_dest, ETH_ALEN);
	exchange((__u8 *)&f->ip.saddr, (__u8 *)&f->ip.daddr, 4);
	exchange((__u8 *)&f->tcp.source, (__u8 *)&f->tcp.dest, 2);
	f->tcp.ack = 1;
	f->tcp.ack_seq = bpf_htonl(bpf_ntohl(f->tcp.seq) + 1);
	f->tcp.seq = bpf_htonl(SEQUENCE);
	return bpf_redirect(skb->ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
