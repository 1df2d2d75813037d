/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * judge.h - judges the sampled connections (sample.h): has the endpoint sent data, or
 * only the client? User space runs it twice a second while there are handshakes.
 */
#ifndef LOXILB_JUDGE_H
#define LOXILB_JUDGE_H

#include "shared.h"
#include "conntrack/conntrack.h"

/* A bit for each endpoint that was judged. Emptied and read by user around a run. */
__u64 judged_endpoints[OUTCOME_ROWS / 64];

enum judgement {
	JUDGED_LATER,
	JUDGED_SERVED,
	JUDGED_STALLED,
	JUDGED_NOT, /* no result: the client has sent nothing, or the connection is gone */
};

/* Judges a connection whose endpoint has sent no data. sent: bytes of the client. */
static __always_inline enum judgement
judge_silent_endpoint(struct connection_sample *s, const struct connection *c,
		      __s32 sent, __u32 now)
{
	if (sent <= 0)
		return now - s->since > SAMPLE_QUIET * hz ? JUDGED_NOT :
							    JUDGED_LATER;
	if (!s->asked)
		s->asked = c->seen ?: 1;
	return (__s32)(now - s->asked) >= (__s32)(SAMPLE_STALL * hz) ?
		       JUDGED_STALLED :
		       JUDGED_LATER;
}

/* Global (verifier: globals). */
__noinline int judge_sample(struct connection_sample *s)
{
	const __u32 now = (__u32)bpf_jiffies64();
	const struct connection *peer;
	struct connection_key key;
	struct connection *c;
	__u32 word, peer_word;
	__s32 sent, answered;

	if (!s) /* verifier: null */
		return JUDGED_NOT;
	key = s->key;
	c = entry_find(&key);
	if (!c || c->endpoint != s->endpoint)
		return JUDGED_NOT;
	word = state_read(c);
	if (word >> STATE_GENERATION_SHIFT != s->generation ||
	    word & STATE_TRAIT(CONN_SINGLE_ENTRY | CONN_ENDED))
		return JUDGED_NOT;
	peer = connection_peer(c, IPPROTO_TCP);
	if (!peer)
		return JUDGED_NOT;
	peer_word = state_read(peer);
	if (!connection_is_pair(&key, word, peer, peer_word))
		return JUDGED_NOT;
	answered = peer->seq_end - s->endpoint_first;
	if (answered >
	    0) /* a FIN counts: the server has closed the connection */
		return JUDGED_SERVED;
	if (word & CONN_RESET) /* by either side: no answer can follow */
		return JUDGED_NOT;
	sent = c->seq_end - s->client_first - !!(word & CONN_FIN_CLIENT);
	return judge_silent_endpoint(s, c, sent, now);
}

/* Counts the client of a stalled connection, once per run of stalls. Only one judge
 * runs at a time: nothing here is atomic. */
static __always_inline void judge_count_client(struct endpoint_outcomes *row,
					       __u32 hash)
{
	const __u16 now = bpf_jiffies64() / hz;
	const __u32 bit = 1U << (hash >> 27);

	if ((__u16)(now - row->stalled_at) > SAMPLE_MEMORY)
		row->stalled_set = 0;
	row->stalled_at = now;
	if (row->stalled_set & bit)
		return;
	row->stalled_set |= bit;
	row->stalled_clients++;
}

/* Counts a stalled connection, unless the previous stall had the same client: one
 * client alone must not take out an endpoint. */
static __always_inline void judge_count_stall(struct endpoint_outcomes *row,
					      const struct ip_addr *client)
{
	const __u32 hash = client_hash(client);

	judge_count_client(row, hash);
	if (row->last_stalled == hash)
		return;
	row->last_stalled = hash;
	__sync_fetch_and_add(&row->stalled, 1);
}

static __always_inline void judge_count(__u32 endpoint, bool served,
					const struct ip_addr *client)
{
	struct endpoint_outcomes *row = outcomes_find(endpoint);

	if (!row)
		return;
	if (served) {
		__sync_fetch_and_add(&row->served, 1);
		row->stalled_set = 0;
	} else {
		judge_count_stall(row, client);
	}
	judged_endpoints[endpoint / 64 % (OUTCOME_ROWS / 64)] |=
		1ULL << (endpoint % 64);
}

/* Judges one sample. A sample that is being written is judged the next time. */
static long judge_sample_at(__u32 place, void *unused)
{
	struct connection_sample *s;
	__u32 endpoint;
	int judgement;

	asm volatile("" : "+r"(place)); /* verifier: bounds */
	s = &samples[place % SAMPLES];
	if (!s->since || (__u32)bpf_jiffies64() - s->since < 2)
		return 0;
	endpoint = s->endpoint;
	judgement = judge_sample(s);
	if (judgement == JUDGED_LATER)
		return 0;
	if (judgement != JUDGED_NOT)
		judge_count(endpoint, judgement == JUDGED_SERVED,
			    &s->key.saddr);
	s->since = 0;
	return 0;
}

#endif
