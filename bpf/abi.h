/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * abi.h - every struct and enum that user space sees, and the only definition
 * of them. bpf2go makes the Go types from it. Members have a fixed width,
 * padding is explicit, there are no bitfields and no anonymous unions. Members
 * in network byte order are __be16 or __be32, all others are in the machine's
 * order. A change of a member's name, type, size or offset is an ABI change:
 * pinned maps of another layout are refused at start.
 */
#ifndef LOXILB_ABI_H
#define LOXILB_ABI_H

#include <linux/types.h>

/*
 * Sizes
 */

/* How many rows the maps have at most. A request of a user that needs more is
 * refused. */
enum limit {
	SLOT_SEGMENTS = 4096,
	SLOTS_PER_SEGMENT = 65536,
	SLOTS_PER_BLOCK = 16,
	MAX_SERVICES = 65536,
	MAX_ENDPOINTS = 262144,
	ENDPOINTS_PER_SEGMENT = 4096,
	MAX_LINKS = 16384,
	MAX_REASONS = 64, /* room for new reasons in maps that are pinned */
	MAX_FRAGMENTED = 8192,
	MAX_REDIALS = 4096, /* connections whose endpoint a SYN waits for */
	FRAGMENTED_PER_SOURCE = 1024, /* begun in a second, not complete */
	FRAGMENT_PLACES = 128,
	MAX_LOCAL_ADDRESSES = 65536,
	MAX_RANGE_PREFIXES = 1048576,
	MAX_SOURCES = 1048576,
	MAX_DEFAULT_ROUTES = 256,
	KNOWN_SETS = 32768,
	KNOWN_WAYS = 4,
	EPOCHS_OF_DAEMON =
		1024, /* a daemon's first epoch comes so many after the last one's */
};

/*
 * Reasons
 */

/* Why a packet was dropped. The name in lower case, without DROP_ and with '-' for '_',
 * is the metric label and the text in logs. loxilb-drops(7) is made from these
 * comments. New reasons go last: their numbers index pinned maps. */
enum drop_reason {
	DROP_NONE, /* not dropped */
	DROP_NO_ENDPOINT, /* the service has no endpoint that takes new connections */
	DROP_NO_CONNECTION, /* a TCP segment other than SYN for a service, without a connection in the table */
	DROP_CONNTRACK_FULL, /* the connection table is full: new connections are refused, established ones continue */
	DROP_TUPLE_IN_USE, /* the client's address and port are in use at an endpoint that has left its service, or prevent a connection to another endpoint */
	DROP_CONNECTION_RACE, /* another CPU is opening, ending or moving the packet's connection, or holds the lock of its bucket for too long, or the service of a new connection is being replaced; the sender repeats the packet */
	DROP_TTL_EXPIRED, /* TTL or hop limit would reach zero */
	DROP_MARTIAN_SOURCE, /* the source is loopback, multicast, unspecified or the VIP itself */
	DROP_MALFORMED, /* a TCP or UDP header, or an SCTP chunk, that contradicts the packet's length; or an SCTP INIT that RFC 9260 forbids */
	DROP_FRAGMENT, /* a later fragment to a VIP whose first fragment did not arrive within the last 30 s, or has no connection */
	DROP_ROUTING_HEADER, /* an IPv6 routing header of type 0, or with segments left */
	DROP_UDP_ZERO_CHECKSUM, /* IPv6 UDP without a checksum (RFC 8200 section 8.1), or a fragment of IPv4 UDP without one to an IPv6 endpoint */
	DROP_NO_ROUTE, /* no route to the endpoint or the client, or the endpoint is a VIP without a service */
	DROP_ROUTE_UNREACHABLE, /* the route is of type unreachable, prohibit or blackhole */
	DROP_FORWARDING_OFF, /* net.ipv4.conf.lo.forwarding or its IPv6 twin is 0 */
	DROP_ROUTE_ENCAP, /* the route has a lightweight tunnel, which the data path does not build */
	DROP_NOT_LINEAR, /* headers could not be read or made writable: out of memory */
	DROP_SOURCE_NOT_ALLOWED, /* a new connection from a source that is not in the service's list */
	DROP_SNAT_PORTS_EXHAUSTED, /* every source address has its 64,000 connections with the endpoint, or as many as the machine's own sockets leave */
	DROP_FRAGMENTS_FULL, /* the first fragment of a datagram from a source that has begun 1,024 others within a second and completed none of them */
	DROP_FRAGMENT_OVERLAP, /* a fragment that would replace ports or flags of the first one */
	DROP_TOO_BIG, /* larger than the MTU towards its next hop; the sender is notified */
	DROP_ICMP_MTU, /* an ICMP error about a connection that reports an impossible MTU: below 68 (IPv4) or 1280 (IPv6) */
	DROP_NOT_TRANSLATABLE, /* client and endpoint use different IP versions, and the packet has no counterpart in the other one: a fragment of ICMP or with further extension headers, an ICMP error of another kind; or it is a fragment of SCTP whose ports change: the checksum depends on all fragments; or an INIT or INIT ACK of SCTP with more than 192 parameters; or a fragment that a PROXY protocol header should precede */
	DROP_DSR_ROUTED, /* direct return by MAC address to an endpoint behind a router, which cannot tell which endpoint the packet is for: use --tunnel */
	DROP_NO_MEMORY, /* the kernel could not allocate memory at once to count a source port or to record a fragmented datagram; the sender repeats the packet */
	DROP_UNKNOWN_SOURCE, /* its service is protected from forged sources, and the packet's source has not recently proven that it exists and cannot be challenged with this packet (not a SYN, or a fragment of one); or the only source ports left are reserved for known clients */
	DROP_HALF_OPEN_FULL, /* its service, or the machine, has reached its limit of half-open connections, and the client cannot be challenged, or is known and the limit is exceeded by half */
	DROP_RATE_LIMIT, /* its service or its client has opened as many connections in this second as allowed */
	DROP_CONNECTION_LIMIT, /* its service or its client has as many open connections as allowed */
	DROP_SOURCE_DENIED, /* its source is in the service's list of denied sources */
	DROP_POLICED, /* beyond the rate of the policer of its service, source or port: red (RFC 2697, RFC 2698) */
	DROP_RULE, /* a firewall rule drops the packet, or the connection that it belongs to */
	DROP_EXTENSION_CHAIN, /* while there are firewall rules: the IPv6 extension headers cannot be followed to the protocol, because the chain is cut off, has a fragment within a fragment, or is longer than 16,000 bytes */
	DROP_IPSEC_POLICY, /* a policy of the kernel's IPsec blocks or encrypts packets of this connection or their answers; loxilb would send them in clear text */
	DROP_LEASE_ENDED, /* an ARP request or neighbor solicitation for a VIP that another node may own by now: this node's daemon died, hangs or was silent for the detection time */
	DROP_OTHER_NETWORK, /* an ARP request for a VIP at an interface whose networks do not hold it, while other interfaces' networks do */
	DROP_UNPROVEN_ADDRESS, /* a packet of an SCTP association by a further address of its client, which has not answered a HEARTBEAT of loxilb there yet; or that answer; or a packet that may belong to an association whose tag is unknown. The sender repeats the packet */
	DROP_REASONS
};
_Static_assert((int)DROP_REASONS <= (int)MAX_REASONS, "ABI");

/* Where programs are in tail_programs, to which others hand packets over: by protocol, and by
 * the program that hands them over. */
enum tail_program {
	TAIL_SCTP_ETHER,
	TAIL_SCTP_LAYER3,
	TAIL_SCTP_ETHER_OUT,
	TAIL_SCTP_LAYER3_OUT,
	TAIL_QUIC_ETHER,
	TAIL_QUIC_LAYER3,
	TAIL_PROXY_ETHER,
	TAIL_PROXY_LAYER3,
	TAIL_PROXY_ETHER_OUT,
	TAIL_PROXY_LAYER3_OUT,
	TAIL_PROGRAMS
};

/* Numbers with which CRC32c follows a change of a packet's header (protocol/sctp_crc.h).
 * Polynomials modulo CRC32c's, reflected: the highest bit is x^0. */
enum sctp_crc_layout {
	SCTP_CRC_WORDS = 16384, /* of the longest packet */
};

struct sctp_crc {
	__u32 power[SCTP_CRC_WORDS]; /* x^(32 * i) */
	__u32 shift[4][256]; /* a byte of the state, followed by 4 zero bytes */
	__u32 byte[256]; /* the state's lowest byte, followed by 1 zero byte */
};

/* Further paths of SCTP's associations (sctp/paths.h). */
enum sctp_limit {
	SCTP_VIPS =
		4, /* of a service: an association has as many paths at least */
	MAX_SCTP_PATHS = 32768,
};

/* How server IDs are in connection IDs (draft-ietf-quic-load-balancers-21). */
enum quic_cipher {
	QUIC_PLAINTEXT,
	QUIC_SINGLE_PASS, /* server ID and nonce are one block of AES-128 */
	QUIC_THREE_PASSES, /* four passes of AES-128, the last of which the balancer does not need */
	QUIC_FOUR_PASSES,
};

/* Sizes of connection IDs. */
enum quic_limit {
	QUIC_CID_MAX = 20,
	QUIC_KEY_WORDS = 44, /* of the rounds of AES-128 */
	QUIC_CONFIGS =
		7, /* the eighth is for connection IDs without a server ID */
	MAX_QUIC_CONFIGS = 65536,
};

/* A configuration of a service: its place among the service's is in the first three bits of
 * connection IDs. */
struct quic_config_key {
	__u32 service;
	__u32 config;
};

/* Bytes of masks are in the order of the packet. */
struct quic_config {
	__u64 id_mask[2]; /* the server ID */
	__u64 left_mask
		[2]; /* the left half of server ID and nonce, if they are encrypted in passes */
	__u64 right_mask[2]; /* the right half, from its first byte on */
	__u8 cipher; /* enum quic_cipher */
	__u8 id_length;
	__u8 length; /* of server ID and nonce; of the shortest nonce if it is QUIC_PLAINTEXT */
	__u8 right; /* where the right half begins */
	__u32 keys
		[QUIC_KEY_WORDS]; /* of AES; QUIC_SINGLE_PASS: of the inverse cipher */
	__u32 pad;
};
_Static_assert(sizeof(struct quic_config) == 232, "ABI");

struct quic_server_key {
	__u64 id[2]; /* bytes in the packet's order, then zeros; the last byte is the length */
	__u32 service;
	__u32 pad;
};

/* Tables of AES-128 (quic/aes.h). */
struct quic_aes {
	__u32 forward[256];
	__u32 inverse[256];
	__u8 forward_box[256];
	__u8 inverse_box[256];
};

/* Why a packet that looked like ours was left to the kernel. Counted in addition to
 * the drops. */
enum pass_reason {
	PASS_PLAIN, /* not ours; not counted */
	PASS_EXTENSION_CHAIN, /* its IPv6 extension headers cannot be followed to its protocol, and there are no firewall rules that it could evade (drop reason `extension-chain`) */
	PASS_REASONS
};

/*
 * Connections
 */

/* An address of either IP version: IPv4 is ::ffff:a.b.c.d (RFC 4291 section
 * 2.5.5.2). */
struct ip_addr {
	__be32 word[4];
};
_Static_assert(sizeof(struct ip_addr) == 16, "ABI");

/* A packet's addresses and ports, as it arrives. */
struct connection_key {
	struct ip_addr saddr;
	struct ip_addr daddr;
	__be16 sport;
	__be16 dport;
	__u8 protocol; /* IANA */
	__u8 pad[3];
} __attribute__((aligned(8))); /* compared by words of 64 bits */
_Static_assert(sizeof(struct connection_key) == 40, "ABI");

/* The VIPs of a service of SCTP with several. */
struct sctp_vip_list {
	struct ip_addr vip[SCTP_VIPS]; /* zero: none */
};
_Static_assert(sizeof(struct sctp_vip_list) == 64, "ABI");

/* What finds a path: ports, and either service and tag of the client's packets, for the first
 * path of the association; or that first path, for the present one. */
struct sctp_path_key {
	struct ip_addr client;
	struct ip_addr vip;
	__be16 sport;
	__be16 dport;
	__u32 tag;
	__u32 service;
	__u32 pad;
};
_Static_assert(sizeof(struct sctp_path_key) == 48, "ABI");

struct sctp_path {
	struct ip_addr client;
	struct ip_addr vip;
	struct ip_addr
		beat_client; /* path of the client's last HEARTBEAT, also for its answer */
	struct ip_addr beat_vip;
	__u32 seen; /* jiffies of the client's last packet by the present path */
	__u32 pad;
};
_Static_assert(sizeof(struct sctp_path) == 72, "ABI");

/* Events that either direction of a connection has seen. Bits are only added,
 * atomically and in both entries, so no CPU loses another CPU's bits. The exception
 * is CONN_RESET, which is cleared when the RST was forged. A reopened connection
 * (reopen.h) is a new one. */
enum connection_flag {
	CONN_REPLY_DIRECTION = 0x01, /* of packets from the endpoint */
	CONN_REPLIED = 0x02, /* the endpoint answered (TCP: SYN+ACK); where
			      * answers are not seen, the client sent more */
	CONN_ASSURED = 0x04, /* TCP: the handshake is complete; others: as
			      * CONN_REPLIED */
	CONN_FIN_CLIENT = 0x08,
	CONN_FIN_ENDPOINT = 0x10,
	CONN_FIN_CLIENT_ACKED = 0x20, /* SCTP: the endpoint sent COOKIE ACK */
	CONN_FIN_ENDPOINT_ACKED = 0x40, /* SCTP: SHUTDOWN COMPLETE */
	CONN_RESET = 0x80,
};

/* Properties of a connection that never change, in both entries. */
enum connection_trait {
	CONN_SNAT = 1, /* its source is a local address and port, counted in
			* snat_usages */
	CONN_RESTING = 2, /* the reply entry of a connection that has ended:
			   * keeps the source port in quarantine */
	CONN_ONE_WAY = 4, /* the endpoint answers the client directly: there is
			   * no entry of replies, and packets keep their
			   * addresses and ports */
	CONN_ENDED = 8, /* a CPU has ended the connection, and is about to
			 * delete the entry (end.h) */
	/* These may be set and cleared; each entry has its own (tcp/state.h): */
	CONN_SENT_RST = 0x10, /* TCP: a RST of this direction set CONN_RESET */
	CONN_OTHER_SYN = 0xe0, /* TCP: half of what is known of another SYN of
			        * the client */
};

/* The kind of a next hop (struct hop). */
enum hop_kind {
	HOP_REDIRECT, /* to the interface, with the MAC addresses */
	HOP_PEER, /* straight into the other end of a veth, in its namespace */
	HOP_LAYER3, /* to an interface without link-layer header */
	HOP_LOCAL, /* to a socket of this machine */
};

/* Special treatment of a direction's packets. If the kind of the next hop is above
 * HOP_PEER or any of these bits is set, forward_uncommon() sends the packet: one
 * comparison of both keeps all of it off the common path. */
enum hop_flag {
	HOP_HELPER =
		0x01, /* its endpoint may have further connections with the client (helper/) */
	HOP_PROXY_PAST =
		0x02, /* the endpoint has acknowledged data behind the header */
	HOP_NO_XDP =
		0x02, /* UDP: XDP must not forward its packets (SERVICE_NO_XDP) */
	HOP_PATHS = 0x02, /* SCTP: the association has used a further path */
	HOP_PROXY_ACKED = 0x04, /* the endpoint has acknowledged the header */
	HOP_ATTACHED = 0x08, /* packets are policed or mirrored (attached.h) */
	HOP_CHANGES_STREAM =
		0x10, /* segments are changed: a PROXY header is added (proxy/), or with HOP_HELPER, FTP's addresses (helper/ftp.h) */
	HOP_PROXY_STATES =
		0x16, /* all states of a connection with a PROXY header */
	HOP_FTP_WITHIN_LINE = 0x02, /* of FTP: the next byte begins no line */
	HOP_FAMILY = 0x20, /* packets leave as those of the other IP version */
	HOP_TUNNEL_IPIP = 0x40, /* packets leave with an outer IP header */
	HOP_TUNNEL_GUE = 0x80, /* ... and UDP */
	HOP_TUNNELS = 0xc0,
};

/* One direction of a connection: 80 bytes, which with a key of 40 and a status word
 * are two cache lines. One more member would cost every connection a third line for
 * each direction, so rare properties are in tables of their own. */
struct connection {
	/* the tuple that packets leave with; reversed, it is the key of the
	 * other direction's entry */
	struct ip_addr saddr;
	struct ip_addr daddr;
	__be16 sport;
	__be16 dport;
	__u16 address_sum; /* ones' complement: new minus old addresses */
	__u16 tuple_sum; /* sum of addresses and ports */
	__u32 seen; /* jiffies (low 32 bits) of the last packet */
	__u16 way; /* its next hop: index into ways; valid iff way_epoch is the current epoch */
	__u16 way_epoch;
	__u64 packets;
	__u64 bytes; /* of IP packets */
	__u32 seq_end; /* TCP: highest sequence number sent, plus one. SCTP: a tag that may replace the client's ack (sctp/state.h), or 0 */
	__u32 ack; /* TCP: last acknowledgement sent; initially the lowest number that acknowledges the other side's SYN. SCTP: the verification tag of packets; 0: unknown */
	__u32 endpoint; /* index into endpoints */
	/* the state word (state.h): these four, changed by atomics */
	__u8 flags; /* enum connection_flag */
	__u8 hop; /* enum hop_flag */
	__u8 traits; /* enum connection_trait */
	__u8 generation; /* the same in both entries; the row's next connection has another one, except once in 256 */
};
_Static_assert(sizeof(struct connection) == 80, "ABI");
_Static_assert(__builtin_offsetof(struct connection, way) % 4 == 0, "ABI");
_Static_assert(__builtin_offsetof(struct connection, flags) % 4 == 0, "ABI");

/* Positions in the state word, which is little endian. */
#define STATE_HOP_SHIFT 8
#define STATE_TRAITS_SHIFT 16
#define STATE_GENERATION_SHIFT 24
#define STATE_TRAIT(trait) ((__u32)(trait) << STATE_TRAITS_SHIFT)
#define STATE_CHANGES_STREAM ((__u32)HOP_CHANGES_STREAM << STATE_HOP_SHIFT)
#define STATE_PROXY_ACKED ((__u32)HOP_PROXY_ACKED << STATE_HOP_SHIFT)
#define STATE_FTP_WITHIN_LINE ((__u32)HOP_FTP_WITHIN_LINE << STATE_HOP_SHIFT)
#define STATE_PROXY_PAST ((__u32)HOP_PROXY_PAST << STATE_HOP_SHIFT)
_Static_assert(__builtin_offsetof(struct connection, hop) ==
		       __builtin_offsetof(struct connection, flags) + 1,
	       "ABI");
_Static_assert(__builtin_offsetof(struct connection, traits) ==
		       __builtin_offsetof(struct connection, flags) + 2,
	       "ABI");
_Static_assert(__builtin_offsetof(struct connection, generation) ==
		       __builtin_offsetof(struct connection, flags) + 3,
	       "ABI");

/*
 * The connection table
 */

/* How the connection table is laid out (table.h). */
enum table_layout {
	ENTRIES_PER_CONNECTION = 2, /* one for each direction */
	CACHE_LINE = 64, /* of x86-64 and nearly all of arm64 */
	ROWS_PER_BUCKET = 30,
	BUCKETS_PER_GROUP = 8,
	TABLE_SEEDS = 10,
	TAG_BITS = 16,
	TAG_WORDS = 8,
	TAGS_PER_WORD = 64 / TAG_BITS,
	SPILLED_SHIFT = 48, /* in the last word of tags: how many of the
			     * bucket's keys are in others of its group */
	SPILLED_MAX = 30, /* if so many have spilled, keys that are placed by
			    * their client go to their second home */
	AWAY_BIT = 56, /* of the last word of tags: keys of the bucket may be at
			* their second home */
	AWAY_SEEN_BIT, /* one was seen there since the sweep's last visit */
	ROW_LIVE_BIT = 63, /* of table_row.status */
	ROW_PLACED_SHIFT =
		61, /* of table_row.status: enum placement, in 2 bits */
	SIZE_BITS = 21, /* of each number in table_state.size */
	CLIENT_CLASSES =
		64, /* of addresses: one for each bit of table_state.by_client */
};
_Static_assert(ROWS_PER_BUCKET < (int)TAG_WORDS * (int)TAGS_PER_WORD,
	       "one lane is for control");

/* How a key is placed in the table (place.h). */
enum placement {
	BY_TUPLE,
	BY_CLIENT,
	BY_TURNED_TUPLE,
};

/* A row of the connection table. */
struct table_row {
	struct connection_key key;
	__u64 status; /* bit ROW_LIVE_BIT; placement; below them, jiffies when the connection began, 0: unknown */
	struct connection connection;
};
_Static_assert(sizeof(struct table_row) == 128, "ABI");

struct table_bucket {
	__u64 tags[TAG_WORDS]; /* TAG_BITS for each row, the first in the
			        * lowest; 0: free */
	struct table_row rows[ROWS_PER_BUCKET];
};

/* A bucket as a map stores it. A map's first value may begin anywhere in a cache
 * line, so a bucket begins table_skew bytes later, where a line begins (config.h).
 * The size is a multiple of a line, so this holds for every bucket. */
enum table_element {
	TABLE_ELEMENT = (sizeof(struct table_bucket) + 2 * CACHE_LINE - 9) /
			CACHE_LINE * CACHE_LINE,
};

/* Which groups have connections of an endpoint (location_map.h). */
enum location_layout {
	ENDPOINT_ROWS = 512, /* bits of this many endpoints */
	LOCATION_PRESENT =
		0, /* the word with the number of words of an endpoint, and in the upper half that of the first one of the present edition */
	LOCATION_BEGIN =
		8, /* the first word of the first edition, on another line of cache */
};

/* A pass through the table by packets (reclaim.h). */
struct reclaim_pass {
	__u32 next; /* bucket, counted through all groups; 0: a pass begins */
	__u32 began; /* jiffies */
	__u32 last; /* jiffies, when packets visited buckets */
};

/* The connection table as a whole. Members that change are on lines of their own. */
struct table_state {
	__u64 size; /* how many groups, three times (place.h) */
	__u32 seeds[TABLE_SEEDS]; /* of the hash; random */
	__u32 count_batch; /* how exact entries is: off by at most this much for each CPU */
	__u32 unfinished; /* the group whose move was given up halfway, by size, and must be moved again */
	__s64 entries_max;
	__u32 skew; /* table_skew when the table was made */
	/* keys have two homes; 0: a former version has made the table, and all keys are
	 * placed by their tuple */
	__u32 has_homes;
	__s64 entries_swept; /* number of entries when this pass of the sweep began; 0: no pass is running */
	/* a bit for each class of addresses (client_class()): new replies to them are
	 * placed by their client */
	__u64 by_client;
	__u32 is_swept; /* the last pass of the sweep has visited all buckets */
	__u32 was_swept; /* the pass before had, when this one began */
	__u64 moved_back; /* entries that growth has moved to an earlier group: a walk in order may have missed them */
	__u64 pad2[3];
	__s64 entries;
	__u64 pad3[8];
};
_Static_assert(sizeof(struct table_state) == 200, "ABI");
_Static_assert(sizeof(struct connection_key) == 4 * TABLE_SEEDS, "ABI");

/*
 * Leases of VIPs (lease.h)
 */

enum lease_limit {
	LEASE_INSTANCES = 4, /* by which a node may own one VIP */
	LEASE_LINKS = 8, /* that may answer for one VIP, unless all do */
};

/* The key of a lease: a VIP, or an instance; the other member is 0. */
struct lease_key {
	struct ip_addr vip;
	__u64 instance; /* a hash of its name */
};
_Static_assert(sizeof(struct lease_key) == 24, "ABI");

struct lease {
	__u64 until; /* of an instance: when it ends, in ns of CLOCK_BOOTTIME */
	__u64 instances
		[LEASE_INSTANCES]; /* of a VIP: one valid lease suffices; 0 after the last one */
	__u32 links
		[LEASE_LINKS]; /* of a VIP: the interfaces that answer ARP; 0 after the last one; none: all do */
};
_Static_assert(sizeof(struct lease) == 72, "ABI");

/*
 * Next hops
 */

enum link_flag {
	LINK_PEER = 1, /* a veth whose other end is in another namespace */
	LINK_LAYER3 = 2, /* no link-layer header: tun, wireguard */
	LINK_BRIDGE = 4,
	LINK_BRIDGE_PORT = 8, /* of a bridge or Open vSwitch */
	LINK_QUEUES =
		16, /* of a peer: no program sees packets leave by it (bulk.h) */
};

/* The key of a next hop. */
struct hop_key {
	struct ip_addr gateway; /* or the target itself; :: where no neighbour
				 * is asked for */
	__u32 ifindex;
	__u16 mtu; /* of packets as they arrive, before anything is added to them; at most 65,535 */
	__u8 smac[6]; /* of the interface */
	__u8 kind; /* enum hop_kind */
	__u8 queues; /* of HOP_PEER: LINK_QUEUES, or 0 */
	__u16 rule; /* counter of the firewall rule whose policers and mirrors packets have, plus one; 0: none */
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct hop_key) == 32, "ABI");
_Static_assert(__builtin_offsetof(struct hop_key, smac[2]) % 4 == 0, "ABI");

/* A next hop, shared by connections (hop.h). One cache line. */
struct hop {
	struct hop_key key;
	__u64 macs; /* the first 8 bytes of frames: the gateway's MAC address, and smac[0] and smac[1] */
	__u64 claim; /* lower half: jiffies of the last confirmation; upper half: how often the row was claimed; HOP_CLAIMED */
	__u32 neighbours; /* generation of neighbours in which macs was found, or HOP_IS_WRITTEN */
	__u32 pad[3];
};
_Static_assert(sizeof(struct hop) == 64, "ABI");
#define HOPS_SHIFT 14
#define HOPS (1 << HOPS_SHIFT)
#define HOP_CLAIMED (1ULL << 63) /* its key is being written */
#define HOP_IS_WRITTEN (1U << 31) /* no generation */

/* The generations that epochs are made of (epoch.h). */
struct hop_generations {
	__u32 routes;
	__u32 neighbours;
};
_Static_assert(sizeof(struct hop_generations) == 8, "ABI");

/* The next hop to an address, as last found (nexthop_cache.h). */
struct next_hop {
	struct ip_addr target;
	__u32 epoch; /* as way_epoch in connection, but all 32 bits */
	__u16 way;
	__u16 pad;
};
_Static_assert(sizeof(struct next_hop) == 24, "ABI");
#define NEXT_HOPS_SHIFT 10
#define NEXT_HOPS (1 << NEXT_HOPS_SHIFT)

/*
 * Services
 */

enum service_kind {
	SERVICE_ONE_PORT, /* or a protocol without ports */
	SERVICE_RANGE, /* service_key.port is the first of the range */
};

/* The destination of packets to a service. Hashing 24 bytes takes as long as 20. */
struct service_key {
	struct ip_addr vip;
	__be16 port;
	__u8 protocol; /* IANA; echo requests: ICMP or ICMPv6, port 0 */
	__u8 kind; /* enum service_kind */
	__u32 mark; /* the packet's mark; 0: any mark that no other service has */
};
_Static_assert(sizeof(struct service_key) == 24, "ABI");

/* A part of a port range that is one prefix: all ports that agree with port in the
 * first prefix_length - RANGE_FIXED_BITS bits. */
struct range_key {
	__u32 prefix_length;
	struct ip_addr vip;
	__u32 mark;
	__u8 protocol;
	__u8 pad;
	__be16 port;
};
_Static_assert(sizeof(struct range_key) == 28, "ABI");
#define RANGE_FIXED_BITS 176
#define RANGE_BITS 192

/* A prefix of addresses that may, or must not, open connections of a service. */
struct source_key {
	__u32 prefix_length;
	__u32 list; /* the service's id, with SOURCES_DENIED for denied sources */
	struct ip_addr addr;
};
#define SOURCES_DENIED (1U << 31)
_Static_assert(sizeof(struct source_key) == 24, "ABI");
#define SOURCE_FIXED_BITS 32
#define SOURCE_BITS 160

enum service_mode {
	MODE_DEFAULT = 0, /* the client's address is kept */
	MODE_ONEARM = 1, /* the source becomes this machine's address */
	MODE_FULLNAT = 2, /* the source becomes the VIP */
	MODE_DSR = 3, /* nothing changes but the MAC address; the endpoint has
		       * the VIP too, and answers directly */
	MODE_HOSTONEARM = 5, /* as onearm; the VIP is every local address */
};

enum service_flag {
	SERVICE_SOURCES = 1, /* only sources in the list open connections */
	SERVICE_EGRESS = 2, /* its endpoints are in egress_endpoints */
	SERVICE_LIMITED = 4, /* it has a row in limits_by_service */
	SERVICE_DENIES = 8, /* sources in its second list open none */
	SERVICE_REFUSE_DROP = 0x10, /* refused packets are not answered */
	SERVICE_REFUSE_PASS = 0x20, /* ... are left to the kernel */
	SERVICE_PROXY = 0x40, /* endpoints get a header of the PROXY protocol */
	SERVICE_TFTP = 0x80, /* helpers: TFTP servers answer from new ports */
	SERVICE_FTP = 0x100, /* ... FTP: data connections follow */
	SERVICE_HELPERS = 0x180,
	SERVICE_NO_XDP =
		0x200, /* a program in front of the packet path changes its packets */
	SERVICE_UNCOMMON = 0x380, /* entries have HOP_HELPER or HOP_NO_XDP */
	SERVICE_TUNNEL_IPIP = 0x400, /* MODE_DSR: with an outer IP header */
	SERVICE_TUNNEL_GUE = 0x800, /* ... and UDP */
	SERVICE_SYN_ALWAYS = 0x1000, /* clients that are not known are
				      * challenged at any time */
	SERVICE_SYN_OFF = 0x2000, /* ... never */
	SERVICE_SECONDARY =
		0x8000, /* of a secondary VIP; only for user space */
};

enum helper_limit {
	TFTP_PORTS =
		2, /* different ports of the endpoints of services with TFTP */
	FTP_TEXT = 128, /* bytes that are read; a multiple of 4 */
	FTP_EXPECT_SECONDS = 30, /* a data connection is awaited */
	FTP_MIN_PORT = 1024, /* of data connections that are expected */
	FTP_PORT_TRIES = 4, /* ports of the VIP that are tried */
	FTP_PER_CLIENT =
		64, /* control connections of a client's address that expect one */
};

/* Why an announced data connection is not expected. */
enum ftp_refusal {
	FTP_REFUSED_CLIENT, /* its client expects FTP_PER_CLIENT others */
	FTP_REFUSED_PORT, /* no port of the VIP was found, or no memory */
	FTP_REFUSED_TLS, /* all of a control connection: it changes to TLS */
	FTP_REFUSALS
};

/* How the endpoint of a new connection is chosen: the numbers of the REST
 * contract (select.h). */
enum algorithm {
	ALGORITHM_RR = 0,
	ALGORITHM_HASH = 1,
	ALGORITHM_PRIORITY = 2,
	ALGORITHM_PERSIST = 3,
	ALGORITHM_LC = 4,
	ALGORITHM_N3 =
		7, /* GTP-U: by the source port, which gtp.bpf.c makes of the tunnel */
	/* not in the contract, which has the numbers up to 7: */
	ALGORITHM_RANDOM = 100,
	ALGORITHM_QUIC = 101, /* by connection ID, otherwise like HASH */
};

/* A service: replaced whole, so an update is atomic. Its slots are
 * slot_count endpoint indices from slot_offset on in segment slot_segment. */
struct service {
	__u32 id; /* index into service_states and idle_timeouts */
	__u32 slot_count; /* 0: no endpoint takes new connections */
	__u16 slot_segment;
	__u16 slot_offset;
	__u8 algorithm; /* enum algorithm */
	__u8 mode; /* enum service_mode */
	__u16 flags; /* enum service_flag */
	__u32 port_max; /* last port of a range, machine's order; 0: one port */
	__u32 persist_prefix; /* bits of the 128 of a client's address that count; valid iff ALGORITHM_PERSIST */
	__u32 source_count; /* number of its own source addresses in snat_sources; 0: the mode's */
};
_Static_assert(sizeof(struct service) == 28, "ABI");

/* How many services use an address. */
struct vip {
	__u32 services; /* all, including those with ranges */
	__u32 ranges;
};

/* A token bucket (bucket.h). */
struct token_bucket {
	__u32 since; /* jiffies of the last refill; 0: never */
	__u32 tokens; /* number of tokens, times hz */
} __attribute__((aligned(8))); /* read and written as one word */

/* Why services refuse packets that would open connections. The names are those of
 * drop_reason. */
enum refusal {
	REFUSAL_NO_ENDPOINT,
	REFUSAL_CONNTRACK_FULL,
	REFUSAL_CONNECTION_LIMIT,
	REFUSAL_RATE_LIMIT,
	REFUSAL_SOURCE_NOT_ALLOWED,
	REFUSAL_SOURCE_DENIED,
	REFUSAL_HALF_OPEN_FULL,
	REFUSAL_UNKNOWN_SOURCE,
	REFUSAL_SNAT_PORTS_EXHAUSTED,
	REFUSAL_TUPLE_IN_USE,
	REFUSAL_NO_CONNECTION,
	REFUSAL_OTHER, /* DROP_NO_MEMORY, DROP_NO_ROUTE, DROP_IPSEC_POLICY */
	REFUSALS
};

/* State of a service that the packet path keeps. Rows of this and the next struct are
 * whole cache lines, so that CPUs that open connections of two services or endpoints
 * do not wait for each other. A row may begin anywhere in a line: the rarely written
 * members come first. */
struct service_state {
	__u64 refused[REFUSALS]; /* packets, by enum refusal */
	__u64 next; /* round robin: how many connections were opened */
	__s64 half_open; /* connections that are not assured */
	struct token_bucket opens; /* while it has limits (limit.h) */
	__s64 open; /* active connections opened since any service has had limits */
};
_Static_assert(sizeof(struct service_state) == 2 * CACHE_LINE, "ABI");

/* A client of a service with ALGORITHM_PERSIST: the first bits of its address. */
struct persist_key {
	struct ip_addr client;
	__u32 service; /* id */
};
_Static_assert(sizeof(struct persist_key) == 20, "ABI");

/* The endpoint of the client's last connection; its next one goes there too. */
struct persist_entry {
	__u32 endpoint; /* index into endpoints */
	__u32 seen; /* jiffies of its last new connection */
};
_Static_assert(sizeof(struct persist_entry) == 8, "ABI");

/* Limits of a service and of each of its clients; 0: unlimited. Rates are new
 * connections per second. */
struct service_limits {
	__u32 rate;
	__u32 connections;
	__u32 client_rate;
	__u32 client_connections;
	__u32 client_prefix; /* how many of the 128 bits of a client's address count */
	__u32 generation; /* of the rows of its clients */
};

/* A client of a service with limits. */
struct limit_key {
	__u32 service;
	__u32 generation;
	struct ip_addr client;
};

struct limit_row {
	struct token_bucket opens;
	__s64 open; /* connections that are not closed */
};

/*
 * Endpoints
 */

enum endpoint_flag {
	ENDPOINT_IN_USE = 1, /* the index is taken */
	/* removed from its service; the row stays until its last connection has ended */
	ENDPOINT_REMOVED = 4,
	ENDPOINT_SHIFT = 8, /* port_shift is valid; port is the range's first */
	/* down while others are up: unanswered SYNs and flows of this machine's
	 * sockets move to another endpoint */
	ENDPOINT_FAILED = 16,
	/* MODE_DEFAULT: it sees a local address instead of any client's, since its
	 * answers might bypass this machine */
	ENDPOINT_SNAT = 32,
	/* its service compares loads: endpoint_state.active has all of its connections */
	ENDPOINT_COMPARED = 64,
};

struct endpoint {
	struct ip_addr addr;
	__be16 port;
	__u16 flags; /* enum endpoint_flag */
	__u32 service; /* index into service_states */
	__u16 port_shift; /* from the service's port to the endpoint's, machine's order; valid iff ENDPOINT_SHIFT */
	__u8 source_bits; /* prefix length of the network through which this machine reaches the endpoint, of 128 bits; source is in it. 0: unknown */
	__u8 addr_bits; /* ... of the network of the endpoint itself, according to the route to it. 0: unknown */
	__u32 weight; /* for new connections; 0: takes none */
	struct ip_addr source; /* this machine's address towards it, or :: if
				* there is none or no mode asks */
};
_Static_assert(sizeof(struct endpoint) == 48, "ABI");

/* The kernel rounds rows of an array up to 8 bytes: slots share one. */
struct slot_block {
	__u32 endpoints[SLOTS_PER_BLOCK];
};
_Static_assert(sizeof(struct slot_block) == 64, "ABI");

/* The first three counts are added to each CPU's (struct connection_count): they have
 * only rare changes, and the counts of builds without counts per CPU. */
struct endpoint_state {
	__u64 unused;
	__u64 connections; /* ever opened */
	__s64 active; /* connections that are not closed */
	__u64 tracked; /* connections in the table, including closed ones */
	/* packets that its service refused because of this endpoint, by DROP_* */
	__u64 snat_ports_exhausted;
	__u64 tuple_in_use;
	__u64 pad2[2];
};
_Static_assert(sizeof(struct endpoint_state) == CACHE_LINE, "ABI");

/* Per CPU. One CPU may count the beginning of a connection and another one its end, so
 * only the sum over all CPUs and struct endpoint_state means something. */
struct connection_count {
	__u64 connections;
	__s64 active;
	__s64 tracked;
};

/* Per CPU. "in" is from the client to the endpoint. */
struct endpoint_traffic {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
};

enum handshake_layout {
	HANDSHAKE_BUCKETS = 11,
	HANDSHAKE_FAST = 6, /* number of bits for usual handshakes */
};

/* Steps of usual TCP handshakes with an endpoint whose answers are seen (handshake.h).
 * Per CPU. */
struct handshake_progress {
	__u64 opened; /* connections, each by a SYN */
	__u64 completed; /* handshakes that clients have completed */
	__u64 answered[HANDSHAKE_FAST]; /* as in struct handshake_counts */
};
_Static_assert(sizeof(struct handshake_progress) == CACHE_LINE, "ABI");

/* Other outcomes of handshakes: slow and failed ones, of all CPUs. */
struct handshake_counts {
	__u64 opened_before; /* as in struct handshake_progress: counted by a version in which CPUs shared all counts */
	__u64 answered
		[HANDSHAKE_BUCKETS]; /* SYNs, by jiffies until the SYN+ACK: 0, and below 1 << i */
	__u64 repeated; /* SYNs repeated before an answer */
	__u64 refused; /* SYNs answered by a RST */
	__u64 reset; /* connections that a RST ended before the endpoint had sent data */
	__u64 unreachable; /* ICMP errors that report an undeliverable SYN */
};
_Static_assert(sizeof(struct handshake_counts) == 2 * CACHE_LINE, "ABI");

/* Outcomes of connections with an endpoint, in addition to its handshakes. Numbers wrap
 * around. */
struct endpoint_outcomes {
	__u32 answered_at; /* jiffies of an answer to a SYN; later ones may follow soon after it */
	/* of SYNs while the endpoint answers none: */
	__u32 last_client; /* hash of the client that sent the last one */
	__u32 clients; /* SYNs whose client differs from the previous SYN's */
	__u32 served; /* sampled connections in which the endpoint has sent data */
	/* sampled connections in which only the client has sent data, and the
	 * endpoint none for SAMPLE_STALL seconds; counted only if the client differs
	 * from last_stalled */
	__u32 stalled;
	__u32 last_stalled; /* hash of the client of the last stalled connection */
	/* the same, but each client once until the endpoint serves one: where clients
	 * choose the endpoint, two addresses that alternate are not several clients */
	__u32 stalled_set; /* a bit for each stalled connection, by the hash */
	__u16 stalled_clients;
	__u16 stalled_at; /* seconds, of the last stalled connection */
};
_Static_assert(sizeof(struct endpoint_outcomes) == CACHE_LINE / 2, "ABI");

enum sample_layout {
	OUTCOME_ROWS = 16384, /* endpoints of a higher id have none */
	SAMPLES = 4096,
	SAMPLES_PER_ENDPOINT = 8, /* places; beyond 512 endpoints they share */
	SAMPLE_STALL = 3, /* seconds */
	SAMPLE_QUIET = 2, /* seconds that a client has to send data */
	SAMPLE_MEMORY =
		30, /* stalls less than this many seconds apart are one run */
	TRIALS = 64, /* a power of two */
	TRIAL_WAIT =
		3, /* for this many seconds, a trial waits for a known client */
};

/* A connection that has just become assured and is watched until the endpoint sends
 * data (sample.h). */
struct connection_sample {
	struct connection_key key; /* of the client's entry */
	__u32 since; /* jiffies; 0: the place is free */
	__u32 endpoint;
	__u32 client_first; /* number of the first byte that the client sends */
	__u32 endpoint_first; /* the same for the endpoint */
	__u32 asked; /* jiffies when the client had sent data; 0: not yet */
	__u32 generation;
};
_Static_assert(sizeof(struct connection_sample) == CACHE_LINE, "ABI");

/* Conditions for which user space waits, and changes when it wakes (wake.h). */
struct wake {
	/* bits of endpoints with new counts since user space last looked */
	__u64 handshakes[MAX_ENDPOINTS / 64];
	__s64 entries; /* wakes when the table has this many entries; WAKE_NEVER: does not wait for that */
	__u32 handshake; /* wakes when an endpoint counts a handshake */
	__u32 pad[13];
};
_Static_assert(sizeof(struct wake) % CACHE_LINE == 0, "ABI");

enum wake_reason {
	WAKE_HANDSHAKE = 1,
	WAKE_ENTRIES,
};

#define WAKE_NEVER 0x7fffffffffffffffLL

/*
 * Connections that are over
 */

enum lifetime_layout {
	HISTOGRAM_BUCKETS = 48,
	LIFE_SHIFT =
		20, /* lives are in fixed point with this many fractional bits of a second */
};

/* The protocols that are counted separately. */
enum lifetime_class {
	LIFETIME_TCP,
	LIFETIME_UDP,
	LIFETIME_SCTP,
	LIFETIME_ICMP,
	LIFETIME_CLASSES
};

struct histogram {
	__u64 sum; /* of the values */
	__u64 buckets
		[HISTOGRAM_BUCKETS]; /* how many values are at most 1 << i and in no bucket before; the last one: all others */
};

/* How long connections lived, and how many bytes they carried (lifetime.h), per
 * CPU. */
struct lifetime_counts {
	struct histogram life; /* of all, 1 << LIFE_SHIFT is a second */
	struct histogram bytes_in; /* of IP packets, from the client */
	struct histogram bytes_out; /* of connections whose answers are seen */
};

/*
 * Local source addresses and ports
 */

/* A local source address and an endpoint: each pair has its own ports. */
struct snat_pair {
	struct ip_addr source;
	struct ip_addr endpoint;
	__be16 port; /* the endpoint's */
	__u8 protocol;
	__u8 pad;
};
_Static_assert(sizeof(struct snat_pair) == 36, "ABI");

#define SNAT_RETIRED 0x80000000

enum port_layout {
	SNAT_RESERVE =
		8, /* one in this many ports of a pair is reserved for known clients */
	/* longer than the sweep needs to free half-open connections: their timeout
	 * under pressure, its slack, and the period of the sweep */
	PORT_PRESSURE_SECONDS = 12,
	PORT_PRESSURES = 1024, /* a power of two */
};

/* The ports that the kernel assigns to sockets of this machine. Connections do not
 * use them where the source address is the machine's, unless too few would be left. */
struct host_ports {
	__u32 limit; /* number of ports for a pair with such an address; 0: too few are left, so connections may use all ports */
	__u32 pad;
	__u64 bits[1024]; /* port / 64, port % 64: 1 iff the port is reserved */
};

struct snat_usage {
	__u32 count; /* ports in use or in quarantine; SNAT_RETIRED: the row is being removed */
};
_Static_assert(sizeof(struct snat_usage) == 4, "ABI");

/* A place in a service's own list of source addresses. */
struct snat_source_key {
	__u32 service; /* id */
	__u32 place;
};
_Static_assert(sizeof(struct snat_source_key) == 8, "ABI");

/* An address from which an endpoint may open connections (egress.h). */
struct egress_key {
	struct ip_addr addr;
	__u8 protocol;
	__u8 pad[3];
};
_Static_assert(sizeof(struct egress_key) == 20, "ABI");

/* The source of connections that endpoints open. */
struct egress_endpoint {
	__u32 endpoint; /* index into endpoints, where they are counted */
	__u32 service; /* id */
	__u32 source_count; /* of its addresses in snat_sources; 0: source is the one */
	struct ip_addr source;
};
_Static_assert(sizeof(struct egress_endpoint) == 28, "ABI");

/* A next hop of a default route. */
struct default_route {
	struct ip_addr gateway; /* ::: none, the route is on-link */
	__u32 ifindex;
};
_Static_assert(sizeof(struct default_route) == 20, "ABI");

/*
 * Firewall rules
 */

/* The 32-bit words, in the machine's order, that rules match. An IPv4 address needs
 * only the last of its four words. */
enum rule_word {
	RULE_SADDR = 0,
	RULE_DADDR = 4,
	RULE_SPORT = 8, /* RULE_NO_PORT: the packet has no ports */
	RULE_DPORT,
	RULE_PROTOCOL,
	RULE_INTERFACE,
	RULE_WORDS,
	RULE_NO_PORT = 1 << 16,
};

enum rule_limit {
	MAX_RULES = 16384,
	RULE_NODES = 1 << 17,
	RULE_ENTRIES = 1 << 18,
	RULE_TREES = 5, /* of an IP version */
	RULE_DEPTH = 24, /* nodes on the way to a leaf, at most */
	RULES_PER_SEGMENT = 1024, /* of counters */
};

enum rule_action {
	RULE_ALLOW,
	RULE_DROP,
	RULE_TRAP, /* the kernel gets the packet */
	RULE_REDIRECT, /* it leaves by another interface, unchanged */
	RULE_SNAT, /* a connection through this machine gets a local source address */
	RULE_SNAT_DEFAULT, /* the same, if it leaves by a default route */

	RULE_RECORD =
		0x80, /* in addition to one of them: copies of the packets are recorded */
};

/* A rule. It matches a packet if each of its words is between first and first + span. */
struct rule {
	__u32 first[RULE_WORDS];
	__u32 span[RULE_WORDS];
	__u64 identity; /* identifies the rule in user space */
	__u32 counter; /* index into rule_hits */
	__u32 mark; /* mark set on packets; 0: unchanged */
	__u32 target; /* RULE_REDIRECT: the interface's index, or 0; RULE_SNAT: index into endpoints, which has the source address */
	__u8 action; /* enum rule_action, and RULE_RECORD */
	__u8 pad[11];
};
_Static_assert(sizeof(struct rule) == 2 * CACHE_LINE, "ABI");
_Static_assert(2 * MAX_RULES <= 0xffff, "hop_key has 16 bits for a rule");

/* A node of a tree. Bits of a word of the packet number the child that comes next. */
struct rule_node {
	__u32 base; /* of its children; of a leaf, of its entries */
	__u8 shift; /* of the bits, in the word */
	__u8 bits; /* how many bits; 0: it is a leaf */
	__u16 word; /* enum rule_word; of a leaf, how many entries it has */
};
_Static_assert(sizeof(struct rule_node) == 8, "ABI");

struct rule_tree {
	__u32 root; /* index into nodes */
	__u32 first; /* the first of its rules */
};

struct rule_trees {
	__u32 count;
	__u32 pad;
	struct rule_tree tree[RULE_TREES]; /* by their first rules */
};

/* The directions of IPsec policies (ipsec.h), in place of an interface. */
enum ipsec_direction {
	IPSEC_OUT = 1, /* of outgoing packets */
	IPSEC_FORWARD, /* of packets to be forwarded: RULE_TRAP requires that they were decrypted */
};

/* All rules in their order, and the trees that find the candidates for a packet.
 * Replaced as a whole. */
struct rule_set {
	__u32 count;
	__u32 interfaces; /* rules that match on an interface */
	struct rule_trees trees[2]; /* of IPv4, and of IPv6 */
	struct rule_node nodes[RULE_NODES];
	__u16 entries[RULE_ENTRIES]; /* of leaves: indices into rules, rising */
	struct rule rules[MAX_RULES];
};
_Static_assert(sizeof(struct rule_set) < 4 << 20,
	       "the kernel has no larger rows");

/*
 * Records
 */

enum record_limit {
	RECORD_BYTES = 472, /* of a packet, from its first header on */
	RECORD_RATE = 100, /* copies a second of a rule, on each CPU */
	RECORD_BUDGETS = 256, /* rules rarely share a budget */
};

enum record_flag {
	RECORD_LAYER3 = 1, /* the packet has no link-layer header */
	RECORD_TAGGED = 2, /* and has a VLAN tag, which is not in data */
};

/* A copy of a packet, or of its beginning. */
struct packet_record {
	__u64 time; /* ns, CLOCK_MONOTONIC */
	__u64 of; /* RECORDER_RULES: the identity of the rule */
	__u32 ifindex; /* interface by which it arrived */
	__u32 length;
	__u16 captured; /* bytes of data */
	__u16 vlan_tci;
	__be16 vlan_proto;
	__u8 verdict; /* RECORDER_RULES: enum rule_action */
	__u8 flags; /* enum record_flag */
	__u8 pad[8];
	__u8 data[RECORD_BYTES];
};
_Static_assert(sizeof(struct packet_record) == 512, "ABI");

/*
 * Traces
 */

enum trace_limit {
	TRACE_BYTES = 192, /* of a packet, from its first header on */
	TRACE_CPUS = 128, /* CPUs that take turns apart from each other */
	TRACE_IDLE_TURN =
		1
		<< 16, /* number of packets to skip at once when tracing has ended */
	TRACE_TURN_SHIFT = 8, /* trace_turn_most is in parts of so many bits */
};

/* When the next packet of a CPU is sampled. */
struct trace_turn {
	__u32 left; /* packets, including that one */
	__u32 random; /* the last number; 0: none yet */
	__u64 pad[7];
};
_Static_assert(sizeof(struct trace_turn) == 64, "ABI");

/* Where a packet was seen. */
enum trace_point {
	TRACE_INGRESS,
	TRACE_EGRESS,
	TRACE_XDP,
};

enum trace_verdict {
	TRACE_PASS,
	TRACE_FORWARD,
	TRACE_DROP,
	TRACE_ANSWER, /* dropped, and its sender is answered */
	TRACE_CHALLENGE, /* its sender is challenged */
};

/* A trace's filter: packets for which all members match. */
struct trace_filter {
	struct ip_addr host; /* an address of the packet, before or after */
	struct ip_addr host_mask; /* 0: any */
	struct ip_addr vip; /* its destination before, or its source after */
	struct ip_addr vip_mask; /* 0: any */
	__u32 sample; /* limit of a sampled packet's random number */
	__u32 ifindex; /* at which it arrives or leaves; 0: any */
	__u16 vip_ports[2]; /* of the VIP: from, to */
	__be16 port; /* any of its ports; 0: any */
	__u8 protocol; /* 0: any; ICMP: of both IP versions */
	__u8 verdicts; /* a bit for each enum trace_verdict */
	__u8 reason; /* enum drop_reason; 0: any */
	__u8 on;
	__u8 pad[6];
};
_Static_assert(sizeof(struct trace_filter) == 88, "ABI");

enum trace_flag {
	TRACE_LAYER3 = 1, /* the packet has no link-layer header */
	TRACE_TAGGED = 2, /* and has a VLAN tag, which is not in data */
};

/* A packet, or its beginning, before or after processing. */
struct packet_view {
	__u32 length;
	__u16 captured; /* bytes of data; 0: the packet no longer exists */
	__u16 segment; /* length of each segment if the packet has several; else 0 */
	__u16 vlan_tci;
	__be16 vlan_proto;
	__u8 flags; /* enum trace_flag */
	__u8 pad[3];
	__u8 data[TRACE_BYTES];
};

/* A packet and its outcome. */
struct packet_trace {
	__u64 time; /* ns, CLOCK_MONOTONIC */
	__u32 took; /* ns, in the program */
	__u32 in; /* interface by which it arrived */
	__u32 out; /* at which it leaves; 0: it does not, or the kernel decides */
	__u8 point; /* enum trace_point */
	__u8 verdict; /* enum trace_verdict */
	__u8 reason; /* enum drop_reason */
	__u8 pass; /* enum pass_reason */
	struct packet_view before;
	struct packet_view after;
};
_Static_assert(sizeof(struct packet_trace) == 440, "ABI");

/* Packets decided by a rule, per CPU. */
struct rule_hit {
	__u64 packets;
	__u64 bytes;
};

/*
 * Fragments
 */

/* A datagram of which fragments are still missing. */
struct fragment_key {
	struct ip_addr saddr;
	struct ip_addr daddr;
	__u32 id; /* as in the header */
	__u8 protocol; /* IPv4; IPv6: 0 */
	__u8 pad[3];
};
_Static_assert(sizeof(struct fragment_key) == 40, "ABI");

struct fragment {
	__be16 sport;
	__be16 dport;
	__u32 since; /* jiffies */
	__u64 seen[2]; /* a bit for each place that a fragment has come for:
		        * FRAGMENT_PLACES */
	__u32 received; /* bytes, of all fragments together */
	__u32 total; /* bytes; 0: the last fragment has not come yet */
	__u16 unit; /* bytes of the first fragment: offsets are multiples of it */
	__u8 protocol;
	__u8 foreign; /* belongs to no service */
	__u32 pad;
};
_Static_assert(sizeof(struct fragment) == 40, "ABI");

/* The type of a row of FTP, instead of a fragment's protocol. No packet with ports has
 * these numbers, which IANA reserves or leaves to experiments. */
enum expectation_kind {
	EXPECT_PASSIVE = 253, /* a client's connection to a VIP */
	EXPECT_ACTIVE = 254, /* an endpoint's connection to a client */
	EXPECT_CONTROL = 255, /* the last one of a control connection */
};

/* A data connection that FTP expects, or the last one that a control connection has
 * announced. A program can use only 64 maps, so these rows are in the table of
 * fragments, with the same size and the time at the same offset. */
struct expectation_key {
	struct ip_addr client;
	struct ip_addr
		server; /* the VIP; EXPECT_ACTIVE: the endpoint; EXPECT_CONTROL: 0 */
	__be16 port; /* that is connected to; EXPECT_CONTROL: the place, below FTP_PER_CLIENT */
	__u16 pad;
	__u8 kind; /* enum expectation_kind */
	__u8 pad2[3];
};
_Static_assert(sizeof(struct expectation_key) == sizeof(struct fragment_key),
	       "ABI");

struct expectation {
	__be16 port; /* of the endpoint, or EXPECT_ACTIVE: of the client */
	__be16 service_port; /* the VIP's, of the control connection */
	__u32 since; /* jiffies */
	struct ip_addr vip; /* EXPECT_PASSIVE: the endpoint's address */
	__u32 endpoint; /* index into endpoints */
	__u32 opener; /* which SYN used it up: FTP_OPENER; 0: none has */
	__u8 place; /* of the control connection */
	__u8 pad[7];
};
_Static_assert(sizeof(struct expectation) == sizeof(struct fragment), "ABI");

/* EXPECT_CONTROL: the announcement of a control connection. */
struct announcement {
	__be16 port; /* as in the text */
	__be16 vip_port; /* ... as the other side sees it */
	__u32 since; /* jiffies */
	struct ip_addr vip; /* of the control connection, like the ports */
	__u32 endpoint; /* index into endpoints */
	__u32 seq; /* of the line */
	__be16 service_port;
	__be16 client_port;
	__u8 kind; /* enum expectation_kind, of the data connection */
	__u8 is_used; /* the data connection was opened */
	__u8 pad[2];
};
_Static_assert(sizeof(struct announcement) == sizeof(struct fragment), "ABI");
_Static_assert(sizeof(((struct fragment *)0)->seen) * 8 == FRAGMENT_PLACES,
	       "ABI");

/*
 * The filter of addresses and ports
 */

/* Which addresses and ports concern us (bloom.h). */
enum bloom_layout {
	BLOOM_SHIFT = 22,
	BLOOM_WORDS = 1 << (BLOOM_SHIFT - 6),
	BLOOM_ALL_PORTS = 1 << 16, /* in place of a port */
};

struct bloom {
	__u64 bits[BLOOM_WORDS];
	__u64 next
		[BLOOM_WORDS]; /* the filter that is being built; valid iff building */
	__u32 wildcards; /* number of bits that stand for all ports of an address, or for a port at every address */
	__u32 building; /* the sweep adds the bits that entries need to next */
	__u32 next_wildcards;
	__u32 kept; /* entries for which the sweep added to next */
};
_Static_assert(sizeof(struct bloom) % 8 == 0, "ABI");

/*
 * Answers
 */

/* Kinds of answers with a rate limit. */
enum answer_limit {
	LIMIT_ICMP_ERRORS,
	LIMIT_RESETS, /* for segments without a connection */
	ANSWER_LIMITS
};

/* Buffers of a CPU for packets, to save stack. */
enum packet_scratch_use {
	SCRATCH_QUOTE, /* the quote of an ICMP error */
	SCRATCH_QUOTED, /* the quote's headers, as they are read (icmp.h) */
	SCRATCH_TRACE, /* struct packet_trace and the reasons for choosing it */
	SCRATCH_RULES, /* struct rule_scratch (rule.h) */
	SCRATCH_SCTP, /* struct sctp_scratch (sctp/paths.h) */
	SCRATCH_FTP = SCRATCH_SCTP, /* ftp_scratch; no packet has both */
	SCRATCH_OPENING, /* struct opening (opening.h) */
	SCRATCHES
};

struct packet_scratch {
	__u64 words[272];
};

/*
 * Hashes
 */

/* What hashes multiply by: 2^64 divided by the golden ratio, which spreads over the
 * bits above (Knuth, The Art of Computer Programming, 6.4), and a second one, of
 * SplitMix64. */
enum hash_factor {
	HASH_FACTOR = 0x9e3779b97f4a7c15ULL,
	HASH_FACTOR_2 = 0xbf58476d1ce4e5b9ULL,
};

struct siphash_key {
	__u64 first;
	__u64 second;
};

/*
 * Challenged and known clients
 */

/* Random numbers that must stay secret. */
struct secret_keys {
	struct siphash_key known;
	struct siphash_key challenge;
};

/* Known clients that share a value of the hash. A row is 32 bits of the hash, and
 * below them the jiffies when it expires. */
struct known_set {
	__u64 rows[KNOWN_WAYS];
};
_Static_assert(sizeof(struct known_set) == 32, "ABI");

struct challenge_counts {
	__u64 sent; /* SYNs that were challenged */
	__u64 answered; /* RSTs with the right number */
};

/*
 * Half-open connections
 */

/* Classes of connections that are counted separately, so a flood of one kind leaves
 * room for the others. */
#define HALF_OPEN_SERVICES 64 /* a power of two */

enum half_open_class {
	HALF_OPEN_TCP,
	HALF_OPEN_OTHERS,
	HALF_OPEN_CLASSES
};

/* Half-open connections. Signed: additions of one CPU may arrive later than
 * subtractions of another. */
struct half_open {
	__s64 of[HALF_OPEN_CLASSES];
};

/* A CPU's changes that are not yet added to struct half_open and
 * service_state.half_open. */
struct half_open_kept {
	__s64 of[HALF_OPEN_CLASSES];
	/* by the lower bits of the service's id: the id, and below it, in 32 bits,
	 * the change */
	__u64 services[HALF_OPEN_SERVICES];
};

/*
 * Policers and mirrors
 */

enum policer_layout {
	MAX_POLICERS = 8192,
	MAX_MIRRORS = 1024,
	MAX_ATTACHED =
		8192, /* services, sources and ports with attachments, each; one source is IPv4's (attached.h) */
	TICK_SHIFT =
		4, /* time is in 16ths of a nanosecond: 18 years are 63 bits */
	COST_SHIFT =
		16, /* costs are in ticks, with so many bits of a fraction */
	MAX_SEGMENTS = 2048, /* limit of counted segments of a packet */
};

enum policer_flag {
	POLICER_ONE_RATE = 1, /* RFC 2697; else RFC 2698 */
	POLICER_COLOR_AWARE = 2,
	POLICER_PACKETS = 4, /* its rates are of packets; else of bytes */
};

/* A policer's result for a packet. */
enum color {
	COLOR_GREEN,
	COLOR_YELLOW,
	COLOR_RED,
	COLORS
};

/* A policer (policer.h): one line of cache. */
struct policer {
	__u64 cost; /* of a byte or packet at the committed rate, in ticks */
	__u64 burst; /* size of the committed bucket, in ticks; 0: it holds nothing */
	__u64 peak_cost; /* two rates: cost at the peak rate */
	__u64 excess_burst; /* of the second bucket: the peak rate's, or the excess bucket */
	__u64 flags; /* enum policer_flag */
	/* changed by packets: */
	__u64 empty; /* ticks when the committed bucket was or will be empty; long ago: it is full */
	__u64 peak_empty; /* two rates: time when the second bucket is empty */
	__s64 excess; /* one rate: contents of the excess bucket, in ticks */
};
_Static_assert(sizeof(struct policer) == CACHE_LINE, "ABI");

/* A policer's results, by enum color, per CPU. Bytes are of IP packets on the wire. */
struct policed {
	__u64 packets[COLORS];
	__u64 bytes[COLORS];
};
_Static_assert(sizeof(struct policed) == 48, "ABI");

/* Policers and mirrors attached to a service, a source, a rule or a port: keys for
 * packets towards endpoints and for answers; 0: none. */
struct attachments {
	__u64 policers[2];
	__u64 mirrors[2];
};
_Static_assert(sizeof(struct attachments) == 32, "ABI");

/* Where copies of packets go (mirror.h). */
struct mirror {
	__u32 ifindex;
	__u32 one_of; /* copies one packet of this many */
	__u32 vlan; /* the tag that copies get; 0: none */
	__u32 pad;
};
_Static_assert(sizeof(struct mirror) == 16, "ABI");

/* Counters of a mirror, per CPU. */
struct mirrored {
	__u64 packets;
	__u64 bytes; /* of frames */
	__u64 lost; /* copies lost, for lack of room at the interface or of memory */
};

/* A prefix of clients' addresses. */
struct attached_source {
	__u32 prefix_length; /* of the 128 bits */
	struct ip_addr addr;
};
_Static_assert(sizeof(struct attached_source) == 20, "ABI");

/*
 * Events
 */

/* The ring buffers: numbers below MAX_WATCHERS for connection events (event.h), the
 * others for packets (record.h, trace.h). */
enum ring {
	MAX_WATCHERS = 4,
	RECORDER_RULES = MAX_WATCHERS, /* of those that firewall rules record */
	FIRST_TRACE,
	MAX_TRACES = 4, /* so many from there on */
	BELL = FIRST_TRACE +
	       MAX_TRACES, /* why user space is woken, enum wake_reason */
	COPIES, /* struct connection_copy, for other nodes (copy.h) */
	RINGS,
};

enum connection_event_kind {
	EVENT_OPENED,
	EVENT_ASSURED,
	EVENT_CLOSING, /* TCP: the first FIN; flags say whose */
	EVENT_ENDED,
};

/* Why a connection has ended, in addition to its flags. */
enum connection_event_cause {
	CAUSE_STATE, /* it was closed or reset, or silent for too long */
	CAUSE_REMOVED, /* its endpoint was removed */
	CAUSE_REPLACED, /* both sides had lost it and started another one */
};

struct connection_event {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	struct ip_addr client; /* addresses as its packets arrive */
	struct ip_addr vip;
	struct ip_addr source; /* addresses as they leave */
	struct ip_addr peer; /* the endpoint; with CONN_ONE_WAY, the VIP */
	__be16 client_port;
	__be16 vip_port;
	__be16 source_port;
	__be16 peer_port;
	__u32 endpoint; /* index into endpoints */
	__u32 sample; /* currently, one connection of this many is reported */
	__u8 kind; /* enum connection_event_kind */
	__u8 cause; /* enum connection_event_cause; of EVENT_ENDED */
	__u8 protocol;
	__u8 flags; /* enum connection_flag, of EVENT_CLOSING and EVENT_ENDED */
	__u8 traits; /* enum connection_trait, of EVENT_CLOSING and EVENT_ENDED, of the client's entry */
	__u8 reply_traits; /* of the other entry, if it was found */
	__u8 pad[2];
	__u64 packets_in; /* since the entries were made */
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
};
_Static_assert(sizeof(struct connection_event) == 128, "ABI");

/* Events that a watcher did not get. */
struct omitted_counts {
	__u64 sampled; /* events left out by sampling */
	__u64 lost; /* events lost because its ring was full */
};

/*
 * Copies of connections for other nodes
 */

/* The whole state of a connection, as nodes exchange it. In the terms of this machine:
 * user space translates ids and times. */
struct connection_copy {
	struct ip_addr client; /* addresses as its packets arrive */
	struct ip_addr vip;
	struct ip_addr source; /* addresses as they leave */
	struct ip_addr endpoint; /* with CONN_ONE_WAY, the VIP */
	__be16 client_port;
	__be16 vip_port;
	__be16 source_port;
	__be16 endpoint_port;
	__u32 seq_end; /* of the client's entry, as in struct connection */
	__u32 ack;
	__u32 reply_seq_end; /* of the reply entry */
	__u32 reply_ack;
	__u32 id; /* index into endpoints */
	__u32 service; /* index into service_states; only of copies to insert */
	__u32 idle; /* jiffies since the last packet of either direction */
	__u32 made; /* CLOCK_BOOTTIME >> COPY_TIME_SHIFT; only of copies in the ring */
	__u8 protocol; /* IANA */
	__u8 flags; /* enum connection_flag, of the client's entry */
	__u8 hop; /* enum hop_flag: HOP_FAMILY, HOP_CHANGES_STREAM and HOP_TUNNELS; of copies to insert, HOP_NO_XDP */
	__u8 traits; /* enum connection_trait: CONN_SNAT and CONN_ONE_WAY */
	__u8 generation;
	__u8 result; /* enum copy_result; written by the insertion */
	__u8 persist_prefix; /* of the service, or 0; only of copies to insert */
	__u8 late; /* the end of a connection that this node may have missed: never inserted */
};
_Static_assert(sizeof(struct connection_copy) == 112, "ABI");

enum copy_limit {
	COPY_BATCH =
		256, /* inserted by one run of the program, in half a millisecond */
	COPY_TIME_SHIFT = 20, /* from nanoseconds to about milliseconds */
};

/* The result of inserting a copy. */
enum copy_result {
	COPY_NONE, /* not tried */
	COPY_INSERTED,
	COPY_MERGED, /* into a connection that existed */
	COPY_OLD, /* copy of an earlier connection from the same address and port */
	COPY_UNKNOWN, /* its endpoint does not exist, or not any more */
	COPY_BUSY, /* another CPU is changing the same rows: try again */
	COPY_CONFLICT, /* another connection has its addresses and ports */
	COPY_FULL, /* no room */
	COPY_OUTRUN, /* merged: a RST of another node that lacks packets which passed here */
	COPY_RESULTS
};

/* Which connections a scan of the table finds. */
enum scan_mode {
	SCAN_ALL,
	SCAN_SINCE, /* used since scan_since */
	SCAN_DUE, /* due for a refresh since scan_since, or closing */
};

/*
 * The sweep
 */

/* Results of the sweep. */
struct sweep_report {
	__u64 visited; /* entries looked at */
	__u64 ended; /* connections removed: expired, or of an endpoint that is gone */
};

/* A connection to end, or that was silent for too long: both ends are to get a RST, or
 * an ABORT of SCTP. */
struct found_end {
	struct connection_key client; /* of its packets as they arrive */
	struct connection_key reply;
	__u32 endpoint; /* index into endpoints */
	__u32 word; /* state word of the client's entry, which identifies the connection later */
};
_Static_assert(sizeof(struct found_end) == 88, "ABI");

enum find_layout {
	FIND_PROTOCOLS =
		4, /* that have states of their own: TCP, ICMP, SCTP, others */
	FIND_FLAGS = 256 / 64, /* words with a bit for each value of flags */
};

/* Which entries a listing wants (find.h). */
struct find_filter {
	struct ip_addr client;
	struct ip_addr client_mask; /* 0: any */
	struct ip_addr vip; /* destination of the client's packets */
	struct ip_addr vip_mask; /* 0: any */
	struct ip_addr endpoint;
	struct ip_addr endpoint_mask; /* 0: any */
	__u64 flags[FIND_PROTOCOLS * FIND_FLAGS];
	__u16 ports[2]; /* of the VIP: from, to */
	__u32 by_endpoint; /* only those of find_endpoints */
};
_Static_assert(sizeof(struct find_filter) == 232, "ABI");

/* An entry that was found, as it was then. */
struct found_row {
	struct table_row row;
	__u64 place; /* number of the row, counted through all groups */
};
_Static_assert(sizeof(struct found_row) == 136, "ABI");

/* How many idle connections were found. */
struct idle_report {
	struct token_bucket more; /* how many more may be handed over */
	__u64 told; /* passed to user space, to end by RSTs */
	__u64 untold; /* ended silently: too many at once */
};

#endif
