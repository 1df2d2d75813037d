/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * attached_port.h - whether packets that arrive at interfaces are policed or mirrored.
 */
#ifndef LOXILB_ATTACHED_PORT_H
#define LOXILB_ATTACHED_PORT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"

/* Whether any interface has attachments. Written by user; each object has its own. */
volatile __u32 ports_attached SEC(".data.runtime") = 0;

static __always_inline struct attachments *port_attachments(__u32 ifindex)
{
	return bpf_map_lookup_elem(&attached_ports, &ifindex);
}

#endif
