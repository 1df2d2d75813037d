/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * opening.h - the data that the steps of opening a connection (open.h) pass on. It is
 * in a map, since it does not fit the stack (verifier: stack).
 */
#ifndef LOXILB_OPENING_H
#define LOXILB_OPENING_H

#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/packet.h"
#include "table/rows.h"
#include "table/table_write.h"

/* A connection that an endpoint opens itself (egress.h), or that FTP expects. */
struct outward {
	bool is; /* an endpoint opens it */
	bool is_given; /* peer is the endpoint; otherwise the other members are invalid */
	bool keeps_port; /* its source address is peer.source, its port stays (helper/) */
	struct endpoint
		peer; /* the packet's destination, or with a port of the endpoint's choice, the endpoint */
};

/* The load of an endpoint: its active connections relative to its weight. */
struct load {
	__u64 active;
	__u64 weight; /* 0: the endpoint takes no connections */
};

/* The endpoint. */
struct choice {
	__u32 endpoint; /* its id; for an outward connection, that of the endpoint that opens it */
	bool is_held; /* the client has had it before (persist.h), or its connection ID names it (quic/) */
	__u64 place; /* where in the service's table it was found; valid iff an algorithm chose it */
	struct persist_key client; /* valid iff ALGORITHM_PERSIST */
	struct {
		__u32 place;
		struct load load;
	} least; /* the least loaded one so far; valid during lc's search */
};

/* The source that the endpoint sees: the client's address and port, or ours. */
struct source {
	struct ip_addr addr;
	__be16 port;
	bool keeps_address; /* the client's address with a local port */
};

/* The search for a local address and port (snat.h). */
struct source_search {
	struct snat_pair pair;
	struct bpf_sock_tuple socket;
	__u32 first_probe; /* a place among the ports of the stripe */
	__u32 probe_stride; /* from one probe's place to the next one's */
	__u32 stripe_bits; /* port_stripe_bits, or 0: all ports */
	__u32 stripe;
	__u32 verdict; /* enum verdict: of the last step */
	bool keeps_ports; /* the address is this machine's, and the kernel reserves some of its ports */
};

/* The connection's rows of the table. */
struct entries {
	struct connection_key reply_key; /* of the endpoint's packets */
	struct connection_key client_key; /* of the client's packets */
	struct connection entry; /* of answers, then of the client's packets */
	struct connection
		reply; /* of answers, until enter() inserts both; valid iff is_pair */
	bool is_pair; /* claim() has inserted nothing, and enter() inserts both rows next to each other (pair.h) */
	bool is_apart; /* each row is inserted alone, as they could not be inserted as a pair */
};

struct opening {
	/* find_service(): */
	struct service service; /* a copy: the row may be replaced meanwhile */
	struct outward outward;
	/* the endpoint whose source address a firewall rule gives the packet, plus
	 * one; 0: none. Valid iff snat_rules */
	__u32 source_of; /* the endpoint whose source a firewall rule gives the packet, plus one; 0: none. Valid iff snat_rules */
	bool source_by_default; /* if it leaves by a default route */
	/* choose(), and claim() if it tries the next one: */
	struct choice choice;
	/* claim(): */
	struct source source;
	struct source_search search; /* valid inside of claim() only */
	/* claim() and enter(), or reopen(): */
	struct entries entries;
	__u32 hop; /* enum verdict: the result of next_hop_resolve() for the packet; filled in by enter() or reopen() */
	/* the packet, and a random number that the context has, too; valid iff the opening was
	 * handed over to QUIC's program (quic/hand_over.h) */
	struct packet packet;
	__u32 ticket;
	/* kept from one opening to the next: */
	__u8 generation; /* of the last connection that this CPU has opened */
};

_Static_assert(sizeof(struct opening) <= sizeof(struct packet_scratch),
	       "opening_get()");

/* Returns the connection that this CPU is opening. */
static __always_inline struct opening *opening_get(void)
{
	__u32 use = SCRATCH_OPENING;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

/* Returns the chosen endpoint. NULL: it no longer exists, or its id belongs to
 * another service by now. */
static __always_inline const struct endpoint *
opening_endpoint(const struct opening *o)
{
	__u32 id = o->choice.endpoint;
	const struct endpoint *ep =
		o->outward.is_given ? &o->outward.peer : endpoint_find(id);

	return ep && ep->service == o->service.id ? ep : NULL;
}

/* A step's verdict where another endpoint, or another source, may succeed. */
static __always_inline enum verdict verdict_taken(struct packet *p,
						  enum drop_reason why)
{
	p->drop = why;
	return VERDICT_TAKEN;
}

/* A step's verdict if there is no room for the connection. */
static __always_inline enum verdict verdict_full(struct packet *p,
						 enum drop_reason why)
{
	p->drop = why;
	return VERDICT_FULL;
}

/* Inserts an entry into the table. TAKEN: its key is in use. */
static __always_inline enum verdict
insert_entry(struct packet *p, const struct connection_key *key,
	     const struct connection *c)
{
	int err = entry_insert(key, c); /* verifier: errors */

	if (likely(!err))
		return VERDICT_CONTINUE;
	if (err == -EEXIST)
		return verdict_taken(p, DROP_TUPLE_IN_USE);
	if (err == -E2BIG)
		return verdict_full(p, DROP_CONNTRACK_FULL);
	return drop(p, DROP_CONNECTION_RACE);
}

#endif
