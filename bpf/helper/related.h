/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * related.h - finds the connection that a related one follows: a transfer of TFTP, or a data
 * connection of FTP.
 */
#ifndef LOXILB_HELPER_RELATED_H
#define LOXILB_HELPER_RELATED_H

#include "helper/ftp_data.h"
#include "helper/tftp.h"

/* Reports whether a packet opens a related connection, and fills in the values for
 * open.h. SCTP has no related connections. */
static __always_inline bool related_find_service(ctx_t *ctx, struct packet *p,
						 struct opening *o)
{
	if (ONLY_SCTP)
		return false;
	if (unlikely(tftp_ports) && tftp_find_service(p, o))
		return true;
	return unlikely(ftp_services) && ftp_find_service(ctx, p, o);
}

#endif
