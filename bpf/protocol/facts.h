/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * facts.h - the properties of a protocol (protocol.h).
 */
#ifndef LOXILB_FACTS_H
#define LOXILB_FACTS_H

#include <linux/types.h>
#include <stdbool.h>
#include "abi.h"

/* How `loxicmd get ct` names states of the protocol's connections. */
enum find_states {
	FIND_TCP_STATES,
	FIND_ECHO_STATES,
	FIND_SCTP_STATES,
	FIND_FLOW_STATES,
};

/* The zero value is a protocol without connections. */
struct protocol {
	bool has_ports; /* the header begins with the source and destination ports */
	bool has_handshake; /* which proves that the client exists */
	bool has_reset; /* refuses packets by protocol_reset(), not by ICMP errors */
	bool is_in_xdp; /* XDP forwards packets of its established connections */
	bool sum_is_optional; /* a checksum of 0 means none */
	bool sum_has_addresses; /* the checksum covers a pseudo header */
	__u8 sum_offset; /* of the Internet checksum in the header; 0: it has none */
	__u8 header; /* length without options */
	enum find_states find;
	enum lifetime_class lifetime;
};

/* Which timeout of its service a connection has. */
enum idle_timeout {
	IDLE_IGNORED,
	IDLE_REPLACES, /* instead of the usual one */
	IDLE_SHORTENS, /* if it is shorter than the usual one */
};

/* How long a connection may be silent, in jiffies. */
struct timeout {
	__u32 usual;
	__u32 pressed; /* while the table is full; counts if it is shorter */
	__u32 least; /* of the service's timeout */
	enum idle_timeout idle;
	bool by_ports; /* pressed as long as source ports are short, too */
};

#endif
