/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rule.h - finds the first firewall rule that matches a packet.
 *
 * User space builds a few trees of the rules for each IP version: one for rules with a
 * narrow source and destination, one for rules with a narrow source, and so on, so most
 * rules are in few places of their tree. A node takes some bits of a word of the packet
 * and continues with the child of that number. A leaf has the rules that can match a
 * packet that gets there, usually one to eight, and those are compared.
 * docs/adr/0079-firewall-rules.md has the alternatives.
 */
#ifndef LOXILB_RULE_H
#define LOXILB_RULE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "filter/rule_count.h"
#include "packet/packet.h"
#include "protocol/protocol.h"
#include "table/table.h"

/* 0 -> 0 -> all firewall rules. Replaced as a whole by user; read, while there are
 * rules, for packets without a connection, and for one packet of each connection
 * after a change. */
struct rule_set_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule_set);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct rule_set_table);
} rule_sets SEC(".maps");

/* counter of a rule -> packets that it has decided, per CPU. Written by the packet
 * path; read by user, and cleared before a new rule uses it. */
struct rule_hits_segment {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RULES_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct rule_hit);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2 * MAX_RULES / RULES_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct rule_hits_segment);
} rule_hits SEC(".maps");

/* The words of a packet. There is room for four more, so that an index of four bits
 * stays within it. */
struct rule_packet {
	__u32 word[16];
};

/* How many packets rules have recorded in the current second. */
struct record_budget {
	__u32 second;
	__u32 taken;
};

/* A CPU's scratch memory: the packet that it matches, to save stack, and the budgets
 * of records. */
struct rule_scratch {
	struct rule_packet packet;
	struct record_budget budgets[RECORD_BUDGETS]; /* by counters of rules */
	__u32 ipsec_epoch; /* in which IPsec policies were checked for a packet */
};

_Static_assert(sizeof(struct rule_scratch) <= sizeof(struct packet_scratch),
	       "rule_scratch_get()");

static __always_inline struct rule_scratch *rule_scratch_get(void)
{
	__u32 use = SCRATCH_RULES;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

static __always_inline struct rule_packet *rule_packet_get(void)
{
	struct rule_scratch *s = rule_scratch_get();

	return s ? &s->packet : NULL;
}

static __always_inline const struct rule_set *rule_set_get(void)
{
	__u32 zero = 0;
	void *sets = bpf_map_lookup_elem(&rule_sets, &zero);

	return sets ? bpf_map_lookup_elem(sets, &zero) : NULL;
}

/* Returns rule number i. */
static __always_inline const struct rule *rule_at(const struct rule_set *set,
						  __u32 i)
{
	asm volatile("" : "+r"(i)); /* verifier: bounds */
	return &set->rules[i & (MAX_RULES - 1)];
}

static __always_inline bool
rule_matches_word(const struct rule *r, const struct rule_packet *k, __u32 i)
{
	return k->word[i] - r->first[i] <= r->span[i];
}

/* Reports whether a rule matches the packet. The words that differ most between rules
 * are compared first. */
static __always_inline bool rule_matches(const struct rule *r,
					 const struct rule_packet *k, bool ipv6)
{
	if (!rule_matches_word(r, k, RULE_DADDR + 3) ||
	    !rule_matches_word(r, k, RULE_SADDR + 3) ||
	    !rule_matches_word(r, k, RULE_DPORT) ||
	    !rule_matches_word(r, k, RULE_SPORT) ||
	    !rule_matches_word(r, k, RULE_PROTOCOL) ||
	    !rule_matches_word(r, k, RULE_INTERFACE))
		return false;
	if (!ipv6)
		return true;
	for (__u32 i = 0; i < 3; i++)
		if (!rule_matches_word(r, k, RULE_SADDR + i) ||
		    !rule_matches_word(r, k, RULE_DADDR + i))
			return false;
	return true;
}

/* The state of a search through trees. */
struct rule_walk {
	const struct rule_set *set;
	const struct rule_packet *packet;
	__u32 ipv6;
	__u32 entry; /* the next entry of the leaf */
	__u32 best; /* the first matching rule so far */
};

/* Looks at an entry of a leaf. The first that matches is the leaf's answer. */
static long rule_try(__u32 n, struct rule_walk *w)
{
	__u32 i = w->entry + n;

	asm volatile("" : "+r"(i));
	i = w->set->entries[i & (RULE_ENTRIES - 1)];
	if (i >= w->best)
		return 1;
	if (!rule_matches(rule_at(w->set, i), w->packet, w->ipv6))
		return 0;
	w->best = i;
	return 1;
}

static __always_inline const struct rule_node *
rule_node_at(const struct rule_set *set, __u32 i)
{
	asm volatile("" : "+r"(i)); /* verifier: bounds */
	return &set->nodes[i & (RULE_NODES - 1)];
}

/* Goes down a tree, and returns the number of the leaf. Global (verifier: globals). */
__noinline __u32 rule_leaf(const struct rule_set *set,
			   const struct rule_packet *packet, __u32 i)
{
	const struct rule_node *n;

	if (!set || !packet) /* verifier: null */
		return 0;
	n = rule_node_at(set, i);
	NO_UNROLL
	for (int depth = 0; depth < RULE_DEPTH && n->bits; depth++) {
		i = packet->word[n->word & 15];
		i = i >> (n->shift & 31) & ((1U << (n->bits & 31)) - 1);
		i += n->base;
		n = rule_node_at(set, i);
	}
	return i;
}

/* Searches the trees, and returns the number of the first matching rule, or
 * MAX_RULES. Skips trees whose first rule comes after a match. Global (verifier:
 * globals). */
__noinline int rule_search(const struct rule_set *set,
			   const struct rule_packet *packet, __u32 ipv6)
{
	struct rule_walk w = {
		.set = set,
		.packet = packet,
		.ipv6 = ipv6,
		.best = MAX_RULES,
	};
	const struct rule_trees *trees;
	const struct rule_node *leaf;

	if (!set || !packet) /* verifier: null */
		return MAX_RULES;
	asm volatile("" : "+r"(ipv6)); /* verifier: bounds */
	trees = &set->trees[ipv6 & 1];
	NO_UNROLL
	for (__u32 t = 0; t < RULE_TREES; t++) {
		if (t >= trees->count || trees->tree[t].first >= w.best)
			break;
		leaf = rule_node_at(set, rule_leaf(set, packet,
						   trees->tree[t].root));
		w.entry = leaf->base;
		bpf_loop(leaf->word, rule_try, &w, 0);
	}
	return w.best;
}

/* Returns the first rule that matches. */
static __always_inline const struct rule *
rule_find(const struct rule_set *set, const struct rule_packet *packet,
	  bool ipv6)
{
	__u32 i = rule_search(set, packet, ipv6);

	return i < MAX_RULES ? rule_at(set, i) : NULL;
}

static __always_inline void rule_put_address(__u32 *word,
					     const struct ip_addr *a)
{
	for (int i = 0; i < 4; i++)
		word[i] = bpf_ntohl(a->word[i]);
}

/* Fills in the words of a packet from its tuple. Ports are filled in separately. */
static __always_inline void rule_put_tuple(struct rule_packet *k,
					   const struct connection_key *tuple,
					   __u32 ifindex)
{
	rule_put_address(&k->word[RULE_SADDR], &tuple->saddr);
	rule_put_address(&k->word[RULE_DADDR], &tuple->daddr);
	k->word[RULE_PROTOCOL] = tuple->protocol;
	k->word[RULE_INTERFACE] = ifindex;
	k->word[RULE_SPORT] = RULE_NO_PORT;
	k->word[RULE_DPORT] = RULE_NO_PORT;
}

static __always_inline void rule_put_ports(struct rule_packet *k, __be16 sport,
					   __be16 dport)
{
	k->word[RULE_SPORT] = bpf_ntohs(sport);
	k->word[RULE_DPORT] = bpf_ntohs(dport);
}

/* Finds the rule of a connection whose client sends packets with this tuple. */
static __always_inline const struct rule *
rule_find_by_tuple(const struct connection_key *tuple, __u32 ifindex, bool ipv6)
{
	const struct rule_set *set = rule_set_get();
	struct rule_packet *k = rule_packet_get();

	if (!set || !k)
		return NULL;
	rule_put_tuple(k, tuple, ifindex);
	if (protocol_of(tuple->protocol).has_ports)
		rule_put_ports(k, tuple->sport, tuple->dport);
	return rule_find(set, k, ipv6);
}

/* Returns a rule's action, without its flags. */
static __always_inline enum rule_action rule_action(const struct rule *r)
{
	return r->action & ~RULE_RECORD;
}

#define NSEC_PER_SEC 1000000000

/* Reports whether a rule may record one more packet in this second. */
static __always_inline bool rule_may_record(const struct rule *r)
{
	__u32 row = r->counter, second = bpf_ktime_get_ns() / NSEC_PER_SEC;
	struct rule_scratch *s = rule_scratch_get();
	struct record_budget *b;

	if (!s)
		return false;
	asm volatile("" : "+r"(row)); /* verifier: bounds */
	b = &s->budgets[row & (RECORD_BUDGETS - 1)];
	if (b->second != second) {
		b->second = second;
		b->taken = 0;
	}
	if (b->taken >= RECORD_RATE)
		return false;
	b->taken++;
	return true;
}

/* Counts a packet that a rule has decided. */
static __always_inline void rule_count_hit(const struct rule *r,
					   const struct packet *p)
{
	__u32 segment = r->counter / RULES_PER_SEGMENT;
	__u32 row = r->counter % RULES_PER_SEGMENT;
	void *rows = bpf_map_lookup_elem(&rule_hits, &segment);
	struct rule_hit *hits = rows ? bpf_map_lookup_elem(rows, &row) : NULL;

	if (!hits)
		return;
	hits->packets++;
	hits->bytes += p->length;
}

#endif
