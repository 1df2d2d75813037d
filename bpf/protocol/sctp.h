/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sctp.h - SCTP (RFC 9260): formats, properties and lifetimes that every program needs.
 * Only the programs of SCTP packets read and change packets (sctp_packet.h,
 * sctp/state.h).
 *
 * The events of an association, in the flags that TCP has too:
 *
 *	CONN_REPLIED		INIT ACK
 *	CONN_ASSURED		COOKIE ECHO: the client exists
 *	SCTP_ESTABLISHED	COOKIE ACK
 *	CONN_FIN_*		SHUTDOWN or SHUTDOWN ACK of a side
 *	SCTP_COMPLETE		SHUTDOWN COMPLETE
 *	CONN_RESET		ABORT
 */
#ifndef LOXILB_SCTP_H
#define LOXILB_SCTP_H

#include <linux/types.h>
#include "config.h"
#include "protocol/closing.h"
#include "protocol/facts.h"

/* The header. Its checksum does not cover addresses: CRC32c is the same in both IP
 * versions. */
struct sctp_header {
	__u32 ports; /* as they are in the packet */
	__be32 tag;
	__u32 check; /* little endian */
};

struct sctp_chunk_header {
	__u8 type; /* enum sctp_chunk */
	__u8 flags;
	__be16 length; /* without padding */
	__be32 tag; /* INIT, INIT ACK: for the packets of the other side */
};

/* Chunk types that change the state. Others count as DATA. */
enum sctp_chunk {
	SCTP_DATA = 0,
	SCTP_INIT = 1,
	SCTP_INIT_ACK = 2,
	SCTP_HEARTBEAT = 4,
	SCTP_HEARTBEAT_ACK = 5,
	SCTP_ABORT = 6,
	SCTP_SHUTDOWN = 7,
	SCTP_SHUTDOWN_ACK = 8,
	SCTP_COOKIE_ECHO = 10,
	SCTP_COOKIE_ACK = 11,
	SCTP_SHUTDOWN_COMPLETE = 14,
	SCTP_I_DATA = 64, /* RFC 8260 */
	SCTP_ASCONF_ACK = 0x80, /* RFC 5061 */
	SCTP_PAD = 0x84, /* RFC 4820 */
	SCTP_ASCONF = 0xc1,
};

#define SCTP_CHUNK_MIN 4
#define SCTP_INIT_LENGTH 20 /* and of INIT ACK, without parameters */
#define SCTP_FLAG_T 1 /* of ABORT and SHUTDOWN COMPLETE */

#define SCTP_ESTABLISHED CONN_FIN_CLIENT_ACKED
#define SCTP_COMPLETE CONN_FIN_ENDPOINT_ACKED
#define SCTP_FINS (CONN_FIN_CLIENT | CONN_FIN_ENDPOINT)
#define SCTP_ENDS (SCTP_FINS | SCTP_COMPLETE | CONN_RESET)

/* has_handshake stays false: half-open associations are counted with flows, not with
 * TCP's, as their clients cannot be challenged. */
static __always_inline struct protocol sctp_facts(void)
{
	return (struct protocol){
		.has_ports = true,
		.has_reset = true,
		.header = sizeof(struct sctp_header),
		.find = FIND_SCTP_STATES,
		.lifetime = LIFETIME_SCTP,
	};
}

/* Timeouts are as for TCP in the corresponding state. There is no half-closed state. */
static __always_inline struct timeout sctp_timeout(__u32 word)
{
	const __u8 flags = word;
	struct timeout t = {
		.usual = timeout_tcp_closing,
		.pressed = timeout_tcp_closed,
	};

	if (connection_is_closed(flags)) {
		t.usual = timeout_tcp_closed;
		t.pressed = timeout_closed_pressed;
	} else if (!(flags & CONN_ASSURED)) {
		t.usual = timeout_tcp_syn;
		t.pressed = timeout_half_open_pressed;
	} else if (!(flags & SCTP_FINS)) {
		t.usual = timeout_tcp_established;
		t.pressed = ~0U;
		t.idle = IDLE_REPLACES;
	}
	return t;
}

#endif
