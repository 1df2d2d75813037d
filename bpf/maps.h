/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * maps.h - every map: key -> value, who writes, who reads.
 *
 * "user" is internal/kernel/datapath. Maps are pinned by name, so that a restarted
 * daemon, or a new version of the programs, goes on with the same connections.
 */
#ifndef LOXILB_MAPS_H
#define LOXILB_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

/* group -> buckets -> one direction of a connection each, by the packet tuple
 * (table.h). Written by the packet path (create, touch, delete) and the sweep
 * (delete, move); read by user for listings, who adds groups as the table fills.
 * A full table refuses newcomers and evicts nobody. max_entries is set at
 * load. */
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

/* 0 -> the size of that table, and how many entries it has. Written by user
 * before packets come, and by the packet path. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct table_state);
} table_states SEC(".maps");

/* word -> bits of groups, by edition and endpoint (whereabouts.h). Written by the
 * packet path and the sweep; emptied and read by user, as memory. max_entries is set
 * at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} whereabouts SEC(".maps");

/* 0 -> entries made less entries removed that table_states has not counted yet,
 * per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} table_counts SEC(".maps");

/* VIP, port, protocol, kind, mark -> service. Written by user; read for new
 * connections and for packets of none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* VIP -> how many services it has. Written by user; read for fragments, which
 * have no ports, and, while any service has a range of ports, for packets
 * without a service of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct ip_addr);
	__type(value, struct vip);
} vips SEC(".maps");

/* VIP, mark, protocol, prefix of ports -> first port of the range, by which
 * services has it: the service is in one place, and replaced whole. Written by
 * user; read for new connections and packets of none, to VIPs with ranges. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_RANGE_PREFIXES);
	__type(key, struct range_key);
	__type(value, __u32); /* machine's order */
} service_ranges SEC(".maps");

/* service id, prefix of addresses -> 1. Written by user; read for new
 * connections of services that have such a list. There is room for twice as many
 * as may be: what is new comes before what is old goes. */
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

/* Keeps in each object's BTF what rows of inner maps are made of: the compiler
 * leaves it out where nothing but a map in a map names it. */
const struct {
	struct table_bucket connections;
	struct service_limits limits;
	struct limit_key limit_key;
	struct limit_row limit_row;
	struct slot_block slots;
	struct endpoint endpoint;
	struct endpoint_state state;
	struct endpoint_traffic traffic;
	struct handshake_counts handshake;
	struct snat_pair snat_pair;
	struct snat_usage snat_usage;
	struct egress_key egress_key;
	struct egress_endpoint egress_endpoint;
	struct persist_key persist_key;
	struct persist_entry persist_entry;
	struct rule_hit rule_hit;
} inner_rows = {};

/* segment -> blocks of slots -> endpoint ids. Written by user, which fills blocks
 * that no service points to and then replaces the service. Segments are made
 * when they are needed, here and below: nothing is reserved. */
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

/* endpoint id -> where it is. Written by user; read for new connections and by
 * the sweep. */
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

/* endpoint id -> connections made and alive. Written by the packet path and
 * the sweep, atomically, once per connection; read by user. */
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

/* endpoint id -> what became of handshakes. Written by the packet path,
 * atomically; read by user as memory, several times a second, which has rows
 * begin at a page, too. */
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

/* 0 -> source and endpoint -> how many connections have a port of that pair: one
 * row for each pair in use. Written by the packet path, atomically, once when a
 * connection opens and once when it is removed; those of none are removed by
 * the sweep. The ports themselves are in connections. Made with the first
 * service. */
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

/* service id, place -> source address, of services that name their own. Written
 * by user before the service that says how many; read for new connections. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct snat_source_key);
	__type(value, struct ip_addr);
} snat_sources SEC(".maps");

/* 0 -> which addresses and ports concern us. Written by user, and by the sweep
 * (next); read for packets that have no connection. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bloom);
} bloom_filter SEC(".maps");

/* address of this machine -> 1. Written by user; read for new connections with a
 * source of ours, and, while any service is of every local address, for packets
 * without a service of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LOCAL_ADDRESSES);
	__type(key, struct ip_addr);
	__type(value, __u8);
} local_addresses SEC(".maps");

/* 0 -> the ports that the kernel gives to this machine's own sockets. Written by
 * user; read for new connections with a source of ours. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_ports);
} kept_ports SEC(".maps");

/* 0 -> address, protocol -> the service by whose address its connections leave.
 * Written by user; read, while there is any, for packets of no connection and
 * no service. Made with the first service that has such endpoints. */
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

/* next hop of a default route -> 1. Written by user; read for new connections of
 * such endpoints. */
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

/* a hash of what it is, or one of the next rows -> a way. Written and read by the
 * packet path. That user space may map it has its rows begin at a page, so that
 * each is one cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* 0 -> the generations that the programs have (epoch.h). Written and read by
 * user: the next daemon goes on from there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hop_generations);
} generations SEC(".maps");

/* 0 -> packets that found no row for their way, per CPU. Written by the packet
 * path, read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ways_full SEC(".maps");

/* hash of an address -> the way there, per CPU. Written and read by the packet
 * path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NEXT_HOPS);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/* service id -> how long a client's endpoint is kept, in jiffies; 0: not at all.
 * Written by user; read for new connections and by the sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} persist_timeouts SEC(".maps");

/* 0 -> service id, client -> its endpoint. Written by the packet path (create,
 * touch) and the sweep (delete). When it is full, the table of slots alone
 * decides for further clients. Made with the first such service; max_entries
 * is set at load. */
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

/* 0 -> service id -> how many connections it may have. Written by user; read for
 * new connections of services with limits, and when any connection closes. Made
 * with the first such service. */
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

/* 0 -> client of a service with limits -> how many connections it has opened.
 * Written and read by the packet path. When it is full, the client that was heard
 * of least recently is forgotten. Made with the first such service. */
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

/* addresses and identification of a fragmented datagram -> its ports. Written
 * and read by the packet path. When it is full, the record that was used least
 * recently gives way. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTED);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* source of datagrams in fragments -> how many more it may begin. Written and
 * read by the packet path. A source that gave way to others has all of its
 * budget again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTED);
	__type(key, struct ip_addr);
	__type(value, struct token_bucket);
} fragment_sources SEC(".maps");

/* 0 -> the keys of hashes. Written by user, once; read where clients are told
 * apart that are known. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct secret_keys);
} secrets SEC(".maps");

/* hash of an address -> whether it is known. Written and read by the packet path.
 * Mapped into memory by nobody: with that flag its rows begin at a page, so that
 * none is in two cache lines. */
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

/* 0 -> how many connections are half-open. Written by the packet path and the
 * sweep, atomically, once for many; read by both, and by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct half_open);
} half_opens SEC(".maps");

/* 0 -> what this CPU has not added to them yet. Written atomically, since a packet
 * may interrupt the sweep. */
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

/* enum packet_scratch_use -> room for that, per CPU. */
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

/* enum lifetime_class -> what connections that are over have had, per CPU. Written by
 * the packet path and the sweep, once for each; read by user. */
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

/* 0 -> what the sweep did, per CPU: a slice runs on one of them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sweep_report);
} sweep_reports SEC(".maps");

/* key -> policer. Written by user, and by the packet path for what is policed. The key
 * is a hash of its name, which the next daemon finds again. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_POLICERS);
	__type(key, __u64);
	__type(value, struct policer);
} policers SEC(".maps");

/* key of a policer -> what it has said, per CPU. Made and read by user; written by the
 * packet path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_POLICERS);
	__type(key, __u64);
	__type(value, struct policed);
} policed_counts SEC(".maps");

/* key -> mirror, likewise. Written by user; read by the packet path for what is
 * mirrored. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MIRRORS);
	__type(key, __u64);
	__type(value, struct mirror);
} mirrors SEC(".maps");

/* key of a mirror -> what it has copied, per CPU. Made and read by user; written by
 * the packet path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MIRRORS);
	__type(key, __u64);
	__type(value, struct mirrored);
} mirrored_counts SEC(".maps");

/* service id -> its policers and mirrors. Written by user; read when a connection finds
 * its next hop, and for each packet of those that have some. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct attachments);
} attached_services SEC(".maps");

/* prefix of clients' addresses -> the same. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, struct attached_source);
	__type(value, struct attachments);
} attached_sources SEC(".maps");

/* counter of a firewall rule -> the same. Written by user; read when a packet or connection is
 * judged, while any rule has some, and for each packet of such connections. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct attachments);
} attached_rules SEC(".maps");

/* interface index -> the same. Written by user; read for each packet while any interface
 * has some. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct attachments);
} attached_ports SEC(".maps");

/* 0 -> a bit for each watcher. Written by user; read when a connection is opened,
 * assured, closing or ended. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} watchers_now SEC(".maps");

/* number of a ring -> what its reader is to read. Made by user, with the size that
 * it needs; written by the packet path and the sweep. */
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

/* number of a ring -> what it was not told, per CPU, of all that had this
 * number. Written by the packet path and the sweep; read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RINGS);
	__type(key, __u32);
	__type(value, struct untold);
} untold_counts SEC(".maps");

#endif
