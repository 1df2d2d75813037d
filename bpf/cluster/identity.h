/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * identity.h - decides whether a copy of another node belongs to the connection of an
 * entry, or to an earlier or later one with the same client port.
 */
#ifndef LOXILB_IDENTITY_H
#define LOXILB_IDENTITY_H

#include "conntrack/conntrack.h"
#include "conntrack/expiry.h"
#include "observe/copy.h"

/* Reports whether the sender of a direction continues after the event that has closed
 * this direction of the entry. */
static __always_inline bool sender_continues(const struct connection_copy *r,
					     __u32 word, __u8 event, __u32 sent,
					     __u32 seq_end)
{
	return word & (event | CONN_RESET) && !(r->flags & event) &&
	       (__s32)(sent - seq_end) > 1;
}

/* Reports whether the copy belongs to a later TCP connection of the entry's generation
 * (they repeat after 256 connections): the entry is closed, and the copy's client or
 * endpoint continues. */
static __always_inline bool copy_reopens(const struct connection_copy *r,
					 const struct connection *c, __u32 word,
					 const struct connection *reply)
{
	if (r->protocol != IPPROTO_TCP || r->flags & CONN_RESET)
		return false;
	return sender_continues(r, word, CONN_FIN_CLIENT, r->seq_end,
				c->seq_end) ||
	       (reply && sender_continues(r, word, CONN_FIN_ENDPOINT,
					  r->reply_seq_end, reply->seq_end));
}

/* How many seconds late a copy may arrive: its entry then seems to be used later. */
#define COPY_DELAY 5

/* Reports whether an entry continues after the end of a TCP connection. It does not if it was
 * last used earlier, whatever its numbers: they wrap around, and 2 GB may have passed other
 * nodes since. Otherwise it continues if its numbers are higher, or if it was used later and
 * they are far below: another connection's. Numbers just below are those of the ended
 * connection, and times do not count: the clock of a node stops with its machine. */
static __always_inline bool copy_end_is_passed(const struct connection_copy *r,
					       __u32 idle, __u32 sent,
					       __u32 answered)
{
	const __u32 left = r->seq_end - sent,
		    reply_left = r->reply_seq_end - answered;

	if (idle > r->idle + COPY_DELAY * hz)
		return false;
	if ((__s32)left < 0 || (__s32)reply_left < 0)
		return true;
	return idle + COPY_DELAY * hz < r->idle &&
	       (left >= TCP_MAX_AHEAD || reply_left >= TCP_MAX_AHEAD);
}

/* Reports whether an entry continues after the end that a late copy describes: the copy is
 * of an earlier connection with the same generation, or of one that has survived. */
static __always_inline bool
copy_end_is_outdated(const struct connection_copy *r,
		     const struct connection *c, const struct connection *reply)
{
	const __u32 idle = copy_idle(c, reply, (__u32)bpf_jiffies64());

	if (r->protocol == IPPROTO_TCP)
		return copy_end_is_passed(r, idle, c->seq_end,
					  reply ? reply->seq_end : c->ack);
	if (r->protocol != IPPROTO_SCTP)
		return true; /* flows of UDP only expire */
	return idle + COPY_DELAY * hz < r->idle || !reply || c->ack != r->ack ||
	       reply->ack != r->reply_ack;
}

/* Reports whether the copy belongs to the connection with this client's entry. replies:
 * the key of the copy's replies. If only one of the two has a header of the PROXY
 * protocol, their numbers differ, and they are not one connection. */
static __always_inline bool copy_matches(const struct connection_copy *r,
					 const struct connection *c, __u32 word,
					 const struct connection *reply,
					 const struct connection_key *replies)
{
	const __u8 one_way = word >> STATE_TRAITS_SHIFT & CONN_ONE_WAY;

	if (r->generation != word >> STATE_GENERATION_SHIFT ||
	    (r->traits & CONN_ONE_WAY) != one_way ||
	    (r->hop ^ word >> STATE_HOP_SHIFT) & HOP_CHANGES_STREAM ||
	    copy_reopens(r, c, word, reply) ||
	    (r->late && copy_end_is_outdated(r, c, reply)))
		return false;
	return one_way ? c->endpoint == r->id : connection_answers(c, replies);
}

static __always_inline bool entry_was_used(const struct connection *c,
					   const struct connection *other)
{
	return c->packets || (other && other->packets);
}

/* Reports whether the copy belongs to a later connection than an open entry with this word.
 * idle: for how long the entry has been silent. used: packets of it were seen here. sent,
 * seq_end: the numbers of the copy and of the entry, in the direction that both share. A later
 * TCP connection has higher numbers (RFC 6528). A copy that is up to a second older than the
 * entry needs much higher ones: then the last packets that were seen here may belong to the
 * later connection, as they do not continue the entry's numbers. */
static __always_inline bool copy_is_successor(const struct connection_copy *r,
					      __u32 word, __u32 idle, bool used,
					      __u32 sent, __u32 seq_end)
{
	const __u8 closing = CONN_RESET | CONN_FIN_CLIENT | CONN_FIN_ENDPOINT;
	const __s32 ahead = sent - seq_end;

	if (r->protocol == IPPROTO_SCTP && !(r->flags & CONN_ASSURED) &&
	    word & CONN_REPLIED)
		return false; /* its INIT may be forged; it ends an unanswered one only */
	if (r->idle < idle)
		return !used || r->protocol != IPPROTO_TCP || ahead > 0;
	return r->protocol == IPPROTO_TCP && !(r->flags & closing) &&
	       r->idle < idle + hz && ahead >= (__s32)TCP_MAX_AHEAD;
}

/* Reports whether the client of an open copy has answered, and that of an entry with this word has
 * not: the entry's INIT may be forged, and packets that are forged keep it in use. */
static __always_inline bool copy_is_proven(const struct connection_copy *r,
					   __u32 word)
{
	return r->protocol == IPPROTO_SCTP && r->flags & ~word & CONN_ASSURED &&
	       !connection_is_closed(r->flags);
}

/* Reports whether the copy belongs to a later connection than this client's entry. */
static __always_inline bool copy_is_later(const struct connection_copy *r,
					  const struct connection *c,
					  __u32 word,
					  const struct connection *reply)
{
	const __u32 now = (__u32)bpf_jiffies64(),
		    idle = copy_idle(c, reply, now);

	if (copy_is_proven(r, word))
		return true;
	if (r->idle < idle &&
	    (connection_is_closed(word) ||
	     idle > connection_timeout(c->endpoint, word, r->protocol)))
		return true;
	return copy_is_successor(r, word, idle, entry_was_used(c, reply),
				 r->seq_end, c->seq_end);
}

#endif
