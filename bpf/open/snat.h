/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * snat.h - assigns a local source address and port to a new connection.
 *
 * The connection table is the allocator: a port is free iff the reply entry with it can
 * be inserted. So two connections never share a port, whatever fails, and no second
 * table must be kept consistent. snat_usages only counts, so that a hopeless search is
 * refused at once: below SNAT_LIMIT at least 512 of 64,512 ports are free, and a search
 * with a random stride misses them all once in ten million times. If the source address
 * is the machine's own, ports that the kernel assigns to sockets are excluded, and the
 * limit is lower by their number.
 *
 * Each pair of source and endpoint is a pool of ports. Its last eighth is reserved for
 * known clients: a sender with forged addresses cannot take all ports. An unknown
 * client is challenged there, or refused if it cannot be (port_pressure.h).
 *
 * In a cluster, each node uses ports of its own stripe while it finds a free one, so two
 * nodes with the same source address do not give one port to two clients.
 *
 * A port is quarantined after its connection: the reply entry stays for
 * timeout_snat_rest (expiry.h). docs/adr/0068-source-ports.md has the alternatives.
 */
#ifndef LOXILB_SNAT_H
#define LOXILB_SNAT_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "conntrack/expiry.h"
#include "observe/wake.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "path/fib.h"
#include "protect/protect.h"
#include "service/opening.h"
#include "service/select.h"

#define SNAT_FIRST_PORT 1024
#define SNAT_PORTS (65536 - SNAT_FIRST_PORT) /* 2^10 * 3^2 * 7 */
#define SNAT_LIMIT 64000 /* ports in use for each pair */
#define SNAT_PROBES 2048

/* How many ports of this node's stripe are tried. A full stripe must not cost each connection
 * SNAT_PROBES lookups, a millisecond; where a 20th is free, one search in 27 misses it. */
#define SNAT_STRIPE_PROBES 64

/* Reports whether the kernel assigns the port to sockets of this machine. */
static __always_inline bool snat_is_host_port(const struct opening *o,
					      __u16 port)
{
	const struct host_ports *kept;
	__u64 word = port / 64;

	if (!o->search.keeps_ports)
		return false;
	kept = kept_ports_get();
	/* verifier: bounds */
	asm volatile("" : "+r"(word));
	word &= 1023;
	return kept && kept->bits[word] >> port % 64 & 1;
}

/* Returns how many connections a pair may have. Sets whether ports are reserved at
 * its source address, for sockets of this machine. */
static __always_inline __u32 snat_limit(struct opening *o)
{
	const struct host_ports *kept = kept_ports_get();

	o->search.keeps_ports =
		kept && kept->limit && is_local_address(&o->search.pair.source);
	return o->search.keeps_ports && kept ? kept->limit : SNAT_LIMIT;
}

/* Returns the number of connections of a pool that unknown clients may have. */
static __always_inline __u32 snat_open_limit(__u32 limit)
{
	return half_open_percent ?
		       limit - (limit + SNAT_RESERVE - 1) / SNAT_RESERVE :
		       limit;
}

/* Puts pressure on ports. For connections outwards, the service's own clients are not
 * challenged. */
static __always_inline void port_pressure_begin(const struct packet *p,
						const struct opening *o)
{
	/* odd, as 0 is none, and within the limit of port_pressure_lasts() */
	const __u32 until = (p->now + PORT_PRESSURE_SECONDS * hz - 1) | 1;
	const __u32 id = o->service.id;
	volatile __u64 *own = &port_pressures[id & (PORT_PRESSURES - 1)];
	const __u64 pressure = (__u64)id << 32 | until;

	if (!port_pressure_is_on(p->now))
		wake_for_table();
	/* CPUs only read them for the rest of the tick */
	if (port_pressure_until != until)
		port_pressure_until = until;
	if (!o->outward.is && *own != pressure)
		*own = pressure;
}

/* Decides about a connection that would get a reserved port of a pool. CONTINUE: its
 * client is known. TAKEN: the client is unknown and cannot be challenged. */
static __noinline enum verdict snat_admit_to_reserve(struct packet *p,
						     const struct opening *o)
{
	port_pressure_begin(p, o);
	if (source_is_known(p))
		return VERDICT_CONTINUE;
	return can_challenge(p, &o->service) && !o->outward.is ?
		       VERDICT_CHALLENGE :
		       verdict_taken(p, DROP_UNKNOWN_SOURCE);
}

/* Decides by the number of connections of the pool. */
static __always_inline enum verdict
snat_admit(struct packet *p, const struct opening *o, __u32 used, __u32 limit)
{
	enum verdict v;

	if (likely(used < snat_open_limit(limit)))
		return VERDICT_CONTINUE;
	if (used & SNAT_RETIRED)
		return drop(p, DROP_CONNECTION_RACE);
	v = half_open_percent ? snat_admit_to_reserve(p, o) : VERDICT_CONTINUE;
	return v == VERDICT_CONTINUE && used >= limit ?
		       verdict_taken(p, DROP_SNAT_PORTS_EXHAUSTED) :
		       v;
}

/* Counts one more connection of the pair, unless the pair has reached its limit, or
 * that of unknown clients. */
static __always_inline enum verdict
snat_usage_begin(struct packet *p, const struct opening *o, __u32 limit)
{
	const struct snat_pair *pair = &o->search.pair;
	const struct snat_usage none = {};
	void *usages = lazy_hash_get(&snat_usages);
	struct snat_usage *u;
	enum verdict v;

	if (!usages)
		return verdict_full(p, DROP_NO_MEMORY);
	u = bpf_map_lookup_elem(usages, pair);
	if (!u) {
		bpf_map_update_elem(usages, pair, &none, BPF_NOEXIST);
		u = bpf_map_lookup_elem(usages, pair);
		if (!u)
			return verdict_full(p, DROP_NO_MEMORY);
	}
	v = snat_admit(p, o, __sync_fetch_and_add(&u->count, 1), limit);
	if (v != VERDICT_CONTINUE)
		__sync_fetch_and_add(&u->count, (__u32)-1);
	return v;
}

/* Reports whether a socket of this machine expects packets with this key. The
 * machine's own connections to the endpoint, such as probes, must continue. */
static __always_inline bool snat_has_local_socket(ctx_t *ctx, struct opening *o)
{
	const struct connection_key *key = &o->entries.reply_key;
	struct bpf_sock_tuple *t = &o->search.socket;
	struct bpf_sock *sk;
	__u32 size;

	if (key->protocol != IPPROTO_TCP && key->protocol != IPPROTO_UDP)
		return false;
	if (is_mapped_ipv4(&key->saddr)) {
		t->ipv4.saddr = key->saddr.word[3];
		t->ipv4.daddr = key->daddr.word[3];
		t->ipv4.sport = key->sport;
		t->ipv4.dport = key->dport;
		size = sizeof(t->ipv4);
	} else {
		__builtin_memcpy(t->ipv6.saddr, &key->saddr, 16);
		__builtin_memcpy(t->ipv6.daddr, &key->daddr, 16);
		t->ipv6.sport = key->sport;
		t->ipv6.dport = key->dport;
		size = sizeof(t->ipv6);
	}
	if (key->protocol == IPPROTO_TCP)
		sk = bpf_skc_lookup_tcp(ctx, t, size, BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(ctx, t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	bpf_sk_release(sk);
	return true;
}

/* Reserves this port. TAKEN: it is in use, here or by a socket of this machine. If
 * the entry for a socket's port cannot be removed again, count it: the sweep removes
 * it later and decrements the count. */
static __always_inline enum verdict
snat_claim_port(ctx_t *ctx, struct packet *p, struct opening *o, __be16 port)
{
	struct connection_key *key = &o->entries.reply_key;
	enum verdict v;

	key->dport = port;
	connection_set_sums(&o->entries.entry, key);
	v = insert_entry(p, key, &o->entries.entry);
	if (v != VERDICT_CONTINUE || !snat_has_local_socket(ctx, o))
		return v;
	if (entry_remove(key, REMOVE_WORD(state_read(&o->entries.entry))))
		return verdict_taken(p, DROP_TUPLE_IN_USE);
	snat_usage_add(&o->search.pair, 1);
	return drop(p, DROP_CONNECTION_RACE);
}

/* The arguments of a search through source addresses and ports. */
struct snat_search {
	ctx_t *ctx;
	struct packet *p;
	const struct endpoint *ep;
	struct opening *opening;
};

/* Returns the port of probe i. */
static __always_inline __u32 snat_port_of(const struct source_search *search,
					  __u32 i)
{
	const __u64 place =
		search->first_probe + (__u64)i * search->probe_stride;

	return SNAT_FIRST_PORT + search->stripe +
	       (place % (SNAT_PORTS >> search->stripe_bits)
		<< search->stripe_bits);
}

static long snat_probe(__u32 i, struct snat_search *s)
{
	struct opening *o = s->opening;
	__u32 port = snat_port_of(&o->search, i);

	if (snat_is_host_port(o, port))
		return 0;
	o->search.verdict = snat_claim_port(s->ctx, s->p, o, bpf_htons(port));
	return o->search.verdict != VERDICT_TAKEN;
}

/* Frees the port if its connection is replaceable. */
static __always_inline bool snat_free_port(struct packet *p, struct opening *o)
{
	const struct connection_key *key = &o->entries.reply_key;
	struct connection *old = entry_find(key);
	__u32 word;

	if (!old)
		return false;
	word = state_read(old);
	return connection_is_replaceable(old, p, key->protocol) &&
	       connection_end(key, old, word, PORT_IS_FREE);
}

/* Reports whether the client's own port would make the key of replies equal to the
 * client's own key: the client is the endpoint, and its source port is the port that
 * it listens on. */
static __always_inline bool
snat_is_own_reply(const struct packet *p, const struct connection_key *reply)
{
	const struct connection_key *own = &p->tuple;

	return own->sport == own->dport && own->sport == reply->sport &&
	       same_addr(&own->saddr, &reply->saddr) &&
	       same_addr(&own->daddr, &reply->daddr);
}

/* Reports whether a client's port is of this node's stripe. */
static __always_inline bool snat_is_own_stripe(__u16 port)
{
	const __u32 mask = (1 << port_stripe_bits) - 1;

	return ((port - SNAT_FIRST_PORT) & mask) == port_stripe;
}

/* Reserves the client's own port if it is free. */
static __always_inline void snat_try_own_port(struct snat_search *s)
{
	struct source_search *search = &s->opening->search;
	__u16 own = bpf_ntohs(s->p->tuple.sport);

	search->verdict = VERDICT_TAKEN;
	if (own < SNAT_FIRST_PORT || snat_is_host_port(s->opening, own) ||
	    snat_is_own_reply(s->p, &s->opening->entries.reply_key) ||
	    !snat_is_own_stripe(own))
		return;
	search->stripe_bits = search->stripe = 0;
	search->first_probe = own - SNAT_FIRST_PORT;
	bpf_loop(1, snat_probe, s, 0);
	if (search->verdict == VERDICT_TAKEN &&
	    snat_free_port(s->p, s->opening))
		bpf_loop(1, snat_probe, s, 0);
}

/* Reserves a random free port of a stripe; bits 0: of all ports. A sequential search
 * would be slow where consecutive connections hold long runs of ports, so it has a
 * random start and stride. The stride is coprime to the number of ports, so no port
 * comes twice. */
static __always_inline void snat_try_random_ports(struct snat_search *s,
						  __u32 stripe, __u32 bits,
						  __u32 probes)
{
	struct source_search *search = &s->opening->search;

	search->stripe_bits = bits;
	search->stripe = stripe;
	search->first_probe = bpf_get_prandom_u32() % SNAT_PORTS;
	search->probe_stride =
		1 + 42 * (bpf_get_prandom_u32() % (SNAT_PORTS / 42));
	bpf_loop(probes, snat_probe, s, 0);
}

/* Reserves the client's own port if it is free, else a port of this node's stripe, else
 * any port: a possible collision with another node is better than a refusal. */
static __always_inline enum verdict snat_find_port(struct snat_search *s)
{
	const struct source_search *search = &s->opening->search;

	snat_try_own_port(s);
	if (search->verdict == VERDICT_TAKEN && port_stripe_bits)
		snat_try_random_ports(s, port_stripe, port_stripe_bits,
				      SNAT_STRIPE_PROBES);
	if (search->verdict == VERDICT_TAKEN)
		snat_try_random_ports(s, 0, 0, SNAT_PROBES);
	return search->verdict == VERDICT_TAKEN ?
		       verdict_taken(s->p, DROP_SNAT_PORTS_EXHAUSTED) :
		       search->verdict;
}

/* Reports whether the VIP is the source: in mode fullnat, and in mode default for a
 * client that is the endpoint itself, unless its route to the VIP might lead elsewhere.
 * An endpoint of the other IP version could not answer it. */
static __always_inline bool snat_uses_vip(const struct packet *p,
					  const struct service *svc,
					  const struct endpoint *ep)
{
	if (family_differs(p, ep))
		return false;
	return svc->mode == MODE_FULLNAT ||
	       (svc->mode == MODE_DEFAULT && !(ep->flags & ENDPOINT_SNAT) &&
		same_addr(&ep->addr, &p->tuple.saddr));
}

/* Chooses a source address: from the service's own list, the VIP, or the machine's
 * address towards the endpoint. */
static __always_inline enum verdict
snat_choose_address(struct packet *p, const struct service *svc,
		    const struct endpoint *ep, __u32 place,
		    struct ip_addr *addr)
{
	if (svc->source_count) {
		struct snat_source_key key = { .service = svc->id };
		const struct ip_addr *own;

		key.place = place % svc->source_count;
		own = bpf_map_lookup_elem(&snat_sources, &key);
		if (!own)
			return drop(p, DROP_CONNECTION_RACE);
		/* it is for endpoints of the other IP version */
		if (is_mapped_ipv4(own) != is_mapped_ipv4(&ep->addr))
			return verdict_taken(p, DROP_SNAT_PORTS_EXHAUSTED);
		*addr = *own;
		return VERDICT_CONTINUE;
	}
	if (snat_uses_vip(p, svc, ep)) {
		*addr = p->tuple.daddr;
		return VERDICT_CONTINUE;
	}
	*addr = ep->source;
	return addr_is_unspecified(addr) ? drop(p, DROP_NO_ROUTE) :
					   VERDICT_CONTINUE;
}

/* Tries to find a port at one source address, and makes the entry of answers. */
static long snat_try_address(__u32 i, struct snat_search *s)
{
	struct opening *o = s->opening;
	__u32 place = bpf_ntohl(s->p->tuple.saddr.word[3]) +
		      bpf_ntohs(s->p->tuple.sport) + i;
	enum verdict v;

	if (o->source.keeps_address) {
		o->search.pair.source = s->p->tuple.saddr;
		v = VERDICT_CONTINUE;
	} else {
		v = snat_choose_address(s->p, &o->service, s->ep, place,
					&o->search.pair.source);
	}
	if (v == VERDICT_CONTINUE)
		v = snat_usage_begin(s->p, o, snat_limit(o));
	if (v == VERDICT_CONTINUE) {
		o->entries.reply_key.daddr = o->search.pair.source;
		v = snat_find_port(s);
		if (v != VERDICT_CONTINUE)
			snat_usage_add(&o->search.pair, -1);
	}
	o->search.verdict = v;
	return v != VERDICT_TAKEN;
}

/* Reserves a tuple with a local source address and port, and stores both in o.
 * Clients are spread over the service's addresses; an address without free ports is
 * skipped. TAKEN: no address has a free port. CHALLENGE: only reserved ports are free.
 */
static __always_inline enum verdict
claim_local_source(ctx_t *ctx, struct packet *p, const struct endpoint *ep,
		   struct opening *o)
{
	const struct connection_key *key = &o->entries.reply_key;
	struct snat_search search = {
		.ctx = ctx,
		.p = p,
		.ep = ep,
		.opening = o,
	};

	o->entries.entry.traits = CONN_SNAT;
	o->search.pair.endpoint = key->saddr;
	o->search.pair.port = key->sport;
	o->search.pair.protocol = key->protocol;
	bpf_loop(o->service.source_count && !o->source.keeps_address ?
			 o->service.source_count :
			 1,
		 snat_try_address, &search, 0);
	o->source.addr = key->daddr;
	o->source.port = key->dport;
	return o->search.verdict;
}

#endif
