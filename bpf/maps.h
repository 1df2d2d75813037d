/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * maps.h - every map: key -> value, who writes, who reads.
 *
 * "user" is internal/datapath. Maps are pinned by name, so that a restarted
 * daemon, or a new version of the programs, goes on with the same connections.
 */
#ifndef LOXILB_MAPS_H
#define LOXILB_MAPS_H

#include "abi.h"

/* packet tuple -> one direction of a connection. Written by the packet path
 * (create, touch) and the sweep (delete); read by user for listings. A plain
 * hash, never an LRU: a full table refuses newcomers and evicts nobody.
 * Entries are allocated on demand. max_entries is set at load. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * 262144);
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

/* VIP, port, protocol -> service. Written by user; read for new connections
 * and for packets of none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* VIP -> number of its services. Written by user; read for fragments, which
 * have no ports. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVICES);
	__type(key, struct ip_addr);
	__type(value, __u32);
} vips SEC(".maps");

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

/* segment -> slots -> endpoint id. Written by user, which fills a range that
 * no service points to and then replaces the service. Segments are made when
 * they are needed. */
struct slot_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS_PER_SEGMENT);
	__type(key, __u32);
	__type(value, __u32);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SLOT_SEGMENTS);
	__type(key, __u32);
	__array(values, struct slot_segment);
} slots SEC(".maps");

/* endpoint id -> where it is. Written by user; read for new connections and by
 * the sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* endpoint id -> connections made and alive. Written by the packet path and
 * the sweep, atomically, once per connection; read by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct endpoint_state);
} endpoint_states SEC(".maps");

/* endpoint id -> traffic, per CPU: exact without an atomic per packet. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct endpoint_traffic);
} endpoint_traffics SEC(".maps");

/* interface index -> enum link_flag. Written by user; read when a next hop is
 * resolved. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, __u32);
} links SEC(".maps");

/* enum drop_reason -> packets, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

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

#endif
