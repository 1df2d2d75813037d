/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * maps.h - every map: key -> value, who writes, who reads.
 *
 * "user" is internal/kernel/datapath. Maps are pinned by name, so that a restarted
 * daemon, or a new version of the programs, continues with the same connections.
 */
#ifndef LOXILB_MAPS_H
#define LOXILB_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

/* group -> buckets -> one direction of a connection each, by the packet tuple
 * (table.h). Written by the packet path (create, touch, delete) and the sweep
 * (delete, move); read by user for listings. User adds groups as the table fills. A
 * full table refuses new connections and evicts none. max_entries is set at load. */
struct connection_group {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS_PER_GROUP);
	__type(key, __u32);
	__uint(value_size, TABLE_ELEMENT);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__array(values, struct connection_group);
} connections SEC(".maps");

/* 0 -> the size of that table, and its number of entries. Written by user before
 * packets arrive, and by the packet path. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table_state);
} table_states SEC(".maps");

/* The value of a map with a single value, as a variable: the kernel puts its address
 * into the program, so there is no lookup and no NULL. The loader connects it to the
 * map (docs/adr/0036-exchange-of-programs.md). */
#define VALUE_OF(map) __hidden SEC(".data." #map)

struct table_state table_value VALUE_OF(table_states) = {};

/* word -> bits of groups, by edition and endpoint (location_map.h). Written by the
 * packet path and the sweep; emptied and read by user, as memory. max_entries is set
 * at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} whereabouts SEC(".maps");

/* 0 -> entries added minus entries removed that are not in table_states yet, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} table_counts SEC(".maps");

/* VIP, port, protocol, kind, mark -> service. Written by user; read for packets
 * without a connection. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* VIP -> its number of services. Written by user; read for fragments, which have no
 * ports, and, while any service has a range of ports, for packets without a service
 * of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct ip_addr);
	__type(value, struct vip);
} vips SEC(".maps");

/* VIP, mark, protocol, prefix of ports -> first port of the range, the key in
 * services: so the service is in one place, and replaced as a whole. Written by user;
 * read for packets without a connection, to VIPs with ranges. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RANGE_PREFIXES);
	__type(key, struct range_key);
	__type(value, __u32); /* machine's order */
} service_ranges SEC(".maps");

/* service id, prefix of addresses -> 1. Written by user; read for new connections of
 * services with a list of sources. There is room for twice the limit: new prefixes are
 * added before old ones are removed. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * MAX_SOURCES);
	__type(key, struct source_key);
	__type(value, __u8);
} allowed_sources SEC(".maps");

/* service id -> counters. Written by the packet path; reset and read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct service_state);
} service_states SEC(".maps");

/* service id -> idle timeout in jiffies, 0 for the protocol's default. Apart
 * from service_states, because user space writes it while packets count. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} idle_timeouts SEC(".maps");

/* Keeps the row types of inner maps in each object's BTF: the compiler leaves them
 * out where only a map in a map uses them. */
const struct {
	struct table_bucket connections;
	struct service_limits limits;
	struct limit_key limit_key;
	struct limit_row limit_row;
	struct slot_block slots;
	struct endpoint endpoint;
	struct endpoint_state state;
	struct connection_count counts;
	struct endpoint_traffic traffic;
	struct handshake_progress steps;
	struct handshake_counts handshake;
	struct snat_pair snat_pair;
	struct snat_usage snat_usage;
	struct egress_key egress_key;
	struct egress_endpoint egress_endpoint;
	struct persist_key persist_key;
	struct persist_entry persist_entry;
	struct rule_hit rule_hit;
	struct lease_key lease_key;
	struct lease lease;
	struct quic_config_key quic_config_key;
	struct quic_config quic_config;
	struct quic_server_key quic_server_key;
	struct sctp_vip_list sctp_vip_list;
	struct sctp_path_key sctp_path_key;
	struct sctp_path sctp_path;
} inner_rows = {};

/* segment -> blocks of slots -> endpoint ids. Written by user, which fills unused
 * blocks and then replaces the service. Here and below, segments are made on demand:
 * nothing is reserved. */
struct slot_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS_PER_SEGMENT / SLOTS_PER_BLOCK);
	__type(key, __u32);
	__type(value, struct slot_block);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SLOT_SEGMENTS);
	__type(key, __u32);
	__array(values, struct slot_segment);
} slots SEC(".maps");

/* endpoint id -> its address and properties. Written by user; read for new
 * connections and by the sweep. */
struct endpoint_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct endpoint);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ENDPOINTS / ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct endpoint_segment);
} endpoints SEC(".maps");

/* endpoint id -> number of connections, opened and active, in addition to those of each
 * CPU. Written by the packet path and the sweep, atomically: for services that compare
 * loads, sockets of this machine, and refusals; read by user. */
struct endpoint_state_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct endpoint_state);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ENDPOINTS / ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct endpoint_state_segment);
} endpoint_states SEC(".maps");

/* endpoint id -> its connections, per CPU. Written by the packet path and the sweep,
 * atomically, since a packet may interrupt the sweep; read by user. */
struct connection_counts_segment {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct connection_count);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ENDPOINTS / ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct connection_counts_segment);
} connection_counts SEC(".maps");

/* endpoint id -> traffic, per CPU: exact without an atomic per packet. */
struct endpoint_traffic_segment {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct endpoint_traffic);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ENDPOINTS / ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct endpoint_traffic_segment);
} endpoint_traffics SEC(".maps");

/* endpoint id -> steps of usual handshakes, per CPU. Written by the packet path; read by
 * user. */
struct handshake_steps_segment {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct handshake_progress);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ENDPOINTS / ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct handshake_steps_segment);
} handshake_steps SEC(".maps");

/* endpoint id -> other outcomes of handshakes. Written by the packet path, atomically;
 * read by user as memory, several times a second, so rows begin at a page, too. */
struct handshake_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, struct handshake_counts);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ENDPOINTS / ENDPOINTS_PER_SEGMENT);
	__type(key, __u32);
	__array(values, struct handshake_segment);
} handshakes SEC(".maps");

/* 0 -> source and endpoint -> number of connections with a port of that pair: one row
 * for each pair in use. Written by the packet path, atomically, when a connection
 * opens and when it is removed; the sweep removes zero counts. The ports themselves
 * are in connections. Made with the first service. */
struct snat_usage_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, struct snat_pair);
	__type(value, struct snat_usage);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct snat_usage_table);
} snat_usages SEC(".maps");

/* service id, place -> source address, for services with their own list. Written by
 * user before the service's count of them; read for new connections. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct snat_source_key);
	__type(value, struct ip_addr);
} snat_sources SEC(".maps");

/* 0 -> the Bloom filter of addresses and ports that concern us. Written by user, and
 * by the sweep (next); read for packets without a connection. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bloom);
} bloom_filter SEC(".maps");

/* address of this machine -> 1. Written by user; read for new connections with a
 * local source address, and, while any service is on every local address, for
 * packets without a service of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LOCAL_ADDRESSES);
	__type(key, struct ip_addr);
	__type(value, __u8);
} local_addresses SEC(".maps");

/* 0 -> the ports that the kernel assigns to this machine's own sockets. Written by
 * user; read for new connections with a local source address. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_ports);
} kept_ports SEC(".maps");

/* 0 -> address, protocol -> the service whose address its connections leave with.
 * Written by user; read, while there is any, for packets without connection and
 * service. Made with the first service that has such endpoints. */
struct egress_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, struct egress_key);
	__type(value, struct egress_endpoint);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct egress_table);
} egress_endpoints SEC(".maps");

/* next hop of a default route -> 1. Written by user; read for new connections that
 * endpoints open. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_DEFAULT_ROUTES);
	__type(key, struct default_route);
	__type(value, __u8);
} default_routes SEC(".maps");

/* interface index -> enum link_flag. Written by user; read when a next hop is
 * resolved. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, __u32);
} links SEC(".maps");

/* a hash of the next hop, or one of the following rows -> a next hop. Written and read
 * by the packet path. The mmap flag aligns rows to a page, so each is one cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HOPS);
	__type(key, __u32);
	__type(value, struct hop);
} ways SEC(".maps");

/* 0 -> the generations of the programs (epoch.h). Written and read by user: the next
 * daemon continues from there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hop_generations);
} generations SEC(".maps");

/* hash of an address -> the next hop to it, per CPU. Written and read by the packet
 * path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NEXT_HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/* 0 -> VIP or instance -> its lease, and which interfaces answer. Written by user; read
 * for ARP requests and neighbor solicitations. A VIP without a row needs no lease, and
 * all interfaces answer. Made with the first row. */
struct lease_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * MAX_SERVICES);
	__type(key, struct lease_key);
	__type(value, struct lease);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct lease_table);
} leases SEC(".maps");

/* service id -> how long a client's endpoint is kept, in jiffies; 0: not at all.
 * Written by user; read for new connections and by the sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} persist_timeouts SEC(".maps");

/* 0 -> service id, client -> its endpoint. Written by the packet path (create, touch)
 * and the sweep (delete). When it is full, further clients follow the table of slots
 * alone. Made with the first such service; max_entries is set at load. */
struct persist_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct persist_key);
	__type(value, struct persist_entry);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct persist_table);
} persists SEC(".maps");

/* 0 -> service id -> its connection limits. Written by user; read for new connections
 * of services with limits, and when any connection closes. Made with the first such
 * service. */
struct limits_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct service_limits);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct limits_table);
} limits_by_service SEC(".maps");

/* 0 -> client of a service with limits -> its number of open connections. Written and
 * read by the packet path. When it is full, the least recently used client is
 * forgotten. Made with the first such service. */
struct limit_clients {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct limit_key);
	__type(value, struct limit_row);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct limit_clients);
} limited_clients SEC(".maps");

/* service id -> largest TCP segment, 0 for any. Written by user; read for SYNs
 * while any service has one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} mss_limits SEC(".maps");

/* addresses and identification of a fragmented datagram -> its ports; or a data connection
 * that FTP expects (struct expectation_key, helper/ftp.h). Written and read by the packet
 * path. When it is full, the least recently used record is evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTED);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* source of fragmented datagrams -> how many more it may begin. Written and read by
 * the packet path. An evicted source has its whole budget again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTED);
	__type(key, struct ip_addr);
	__type(value, struct token_bucket);
} fragment_sources SEC(".maps");

/* 0 -> the keys of hashes. Written by user, once; read where known clients are looked
 * up. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct secret_keys);
} secrets SEC(".maps");

struct secret_keys secret_value VALUE_OF(secrets) = {};

/* hash of an address -> known clients. Written and read by the packet path; read by
 * user, as memory. The mmap flag also makes its rows begin at a page, so none is in
 * two cache lines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KNOWN_SETS);
	__type(key, __u32);
	__type(value, struct known_set);
} known_clients SEC(".maps");

/* 0 -> challenges, per CPU. Written by the packet path; read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct challenge_counts);
} challenges SEC(".maps");

/* 0 -> number of half-open connections. Written by the packet path and the sweep,
 * atomically, in batches; read by both, and by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct half_open);
} half_opens SEC(".maps");

struct half_open half_open_value VALUE_OF(half_opens) = {};

/* 0 -> this CPU's changes that are not yet added to half_opens. Written atomically,
 * since a packet may interrupt the sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct half_open_kept);
} half_opens_kept SEC(".maps");

/* enum answer_limit -> how many more answers may be sent, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ANSWER_LIMITS);
	__type(key, __u32);
	__type(value, struct token_bucket);
} answer_buckets SEC(".maps");

/* enum packet_scratch_use -> scratch memory, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct packet_scratch);
} packet_scratches SEC(".maps");

/* enum drop_reason -> packets, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* enum drop_reason -> bytes of IP packets, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drop_bytes SEC(".maps");

/* enum lifetime_class -> lifetimes and bytes of connections that have ended, per CPU.
 * Written by the packet path and the sweep, once per connection; read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LIFETIME_CLASSES);
	__type(key, __u32);
	__type(value, struct lifetime_counts);
} lifetimes SEC(".maps");

/* enum pass_reason -> packets, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} passes SEC(".maps");

/* 0 -> report of the sweep, per CPU: a slice runs on one of them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sweep_report);
} sweep_reports SEC(".maps");

/* key -> policer. Written by user, and by the packet path for policed packets. The
 * key is a hash of its name, so the next daemon finds it again. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_POLICERS);
	__type(key, __u64);
	__type(value, struct policer);
} policers SEC(".maps");

/* key of a policer -> counts by color, per CPU. Made and read by user; written by the
 * packet path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_POLICERS);
	__type(key, __u64);
	__type(value, struct policed);
} policed_counts SEC(".maps");

/* key -> mirror; the key is a hash, too. Written by user; read by the packet path for
 * mirrored packets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MIRRORS);
	__type(key, __u64);
	__type(value, struct mirror);
} mirrors SEC(".maps");

/* key of a mirror -> counts of copies, per CPU. Made and read by user; written by the
 * packet path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MIRRORS);
	__type(key, __u64);
	__type(value, struct mirrored);
} mirrored_counts SEC(".maps");

/* service id -> its policers and mirrors. Written by user; read when a connection
 * finds its next hop, and for each packet of connections with attachments. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct attachments);
} attached_services SEC(".maps");

/* prefix of clients' addresses -> its policers and mirrors; written and read like
 * attached_services. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, struct attached_source);
	__type(value, struct attachments);
} attached_sources SEC(".maps");

/* counter of a firewall rule -> its policers and mirrors. Written by user; read when
 * rules decide a packet or connection, while any rule has attachments, and for each
 * packet of a connection with attachments. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct attachments);
} attached_rules SEC(".maps");

/* interface index -> its policers and mirrors. Written by user; read for each packet
 * while any interface has attachments. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct attachments);
} attached_ports SEC(".maps");

/* enum tail_program -> the program of SCTP packets, of packets that open connections of
 * QUIC, or of connections with a header of the PROXY protocol; none while no service has
 * SCTP, ALGORITHM_QUIC or SERVICE_PROXY. One map for all, as a program can use only 64.
 * Written by user. Pinned, as the kernel empties it when nobody holds it. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TAIL_PROGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} tail_programs SEC(".maps");

/* 0 -> service id, number -> its configuration of connection IDs. Written by user; read for
 * new connections. Made with the first service of ALGORITHM_QUIC, like the next one. */
struct quic_config_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_QUIC_CONFIGS);
	__type(key, struct quic_config_key);
	__type(value, struct quic_config);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct quic_config_table);
} quic_configs SEC(".maps");

/* 0 -> service id, server ID -> endpoint id. */
struct quic_server_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, struct quic_server_key);
	__type(value, __u32);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct quic_server_table);
} quic_servers SEC(".maps");

/* 0 -> service id -> its VIPs, for SCTP services with several. Written by user; read
 * for INIT ACK and COOKIE ECHO. Made with the first such service, like the next one. */
struct sctp_vip_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct sctp_vip_list);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct sctp_vip_table);
} sctp_vips SEC(".maps");

/* 0 -> see struct sctp_path_key -> a path of an association. Written by the packet path. Rows
 * of ended associations stay until others need the room: their tags are used no longer. */
struct sctp_path_table {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SCTP_PATHS);
	__type(key, struct sctp_path_key);
	__type(value, struct sctp_path);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct sctp_path_table);
} sctp_paths SEC(".maps");

/* number of a ring -> the ring buffer that its reader reads. Made by user, in the
 * size that it needs; written by the packet path and the sweep. */
struct watcher_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, RINGS);
	__type(key, __u32);
	__array(values, struct watcher_ring);
} watchers SEC(".maps");

/* number of a ring -> events left out or lost, per CPU, over all readers of this
 * number. Written by the packet path and the sweep; read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RINGS);
	__type(key, __u32);
	__type(value, struct omitted_counts);
} untold_counts SEC(".maps");

#endif
