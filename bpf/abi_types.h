/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * abi_types.h - types of abi.h that no map has, for the Go types.
 */
#ifndef LOXILB_ABI_TYPES_H
#define LOXILB_ABI_TYPES_H

#include "abi.h"
#include "packet/packet.h"

/* Keeps these types in the object's BTF, from which the Go types are made. Clang omits
 * types without a variable: enums used for their values, and events in ring buffers. */
const struct {
	struct connection_event connection_event;
	struct packet_record record;
	struct packet_trace trace;
	enum tail_program tail_program;
	enum sctp_crc_layout crc_layout;
	enum sctp_limit sctp_limit;
	enum quic_cipher quic_cipher;
	enum quic_limit quic_limit;
	struct quic_aes quic_aes;
	enum trace_limit trace_limit;
	enum trace_point trace_point;
	enum trace_verdict trace_verdict;
	enum trace_flag trace_flag;
	enum limit limit;
	enum lease_limit lease_limit;
	enum table_layout table;
	enum placement placement;
	enum table_element element;
	enum location_layout locations;
	enum bloom_layout bloom;
	enum hash_factor hash;
	enum connection_flag connection;
	enum endpoint_flag endpoint;
	enum sample_layout sample;
	enum refusal refusal;
	enum port_layout ports;
	enum link_flag link;
	enum hop_kind hop_kind;
	enum hop_flag hop_flag;
	enum service_kind kind;
	enum service_mode mode;
	enum connection_trait trait;
	enum service_flag service;
	enum helper_limit helper;
	enum ftp_refusal ftp_refusal;
	enum expectation_kind expectation_kind;
	enum algorithm algorithm;
	enum drop_reason drop;
	enum pass_reason pass;
	enum half_open_class half_open;
	enum handshake_layout handshake;
	enum packet_scratch_use scratch;
	enum lifetime_layout lifetime;
	enum lifetime_class lifetime_class;
	enum wake_reason wake;
	enum connection_event_kind event;
	enum connection_event_cause cause;
	enum ring ring;
	struct connection_copy copy;
	enum copy_limit copy_limit;
	enum copy_result copy_result;
	enum scan_mode scan_mode;
	enum record_limit record_limit;
	enum record_flag record_flag;
	enum policer_layout policer_layout;
	enum policer_flag policer;
	enum color color;
	enum rule_word rule_word;
	enum rule_limit rule_limit;
	enum rule_action rule_action;
	enum ipsec_direction ipsec_direction;
} abi_enums = {};

#endif
