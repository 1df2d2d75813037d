/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ftp_text.h - reads the numbers of a command or reply of FTP, and writes others into it.
 *
 *	PORT 10,0,0,1,200,10            six numbers: an IPv4 address and a port
 *	227 text (10,0,0,1,200,10)      the same, anywhere in the text
 *	EPRT |1|10.0.0.1|51210|         fields between delimiters; the third is a port
 *	229 text (|||51210|)            the same after a parenthesis
 *	234 text                        no numbers: TLS follows (RFC 4217)
 */
#ifndef LOXILB_HELPER_FTP_TEXT_H
#define LOXILB_HELPER_FTP_TEXT_H

#include "packet/packet.h"
#include "proxy/segment.h"

#if ONLY_PROXY

#define FTP_BEGINNING 5 /* bytes of a line that decide its kind */

enum ftp_kind {
	FTP_OTHER,
	FTP_PORT,
	FTP_EPRT,
	FTP_227,
	FTP_229,
	FTP_234,
};

/* The parsed part of a line. In a map, since older verifiers misjudge the length of
 * loops over the stack. */
struct ftp_scan_state {
	__u32 kind; /* enum ftp_kind */
	__u32 line; /* where it begins */
	__u32 numbers; /* complete numbers; with delimiters: number of delimiters */
	__u32 digits; /* of the present number */
	__u32 value; /* of the present number */
	__u32 delimiter; /* 0: none has come */
	__u32 first; /* where the numbers begin that may change */
	__u32 end; /* where the numbers end; 0: they are not complete */
	__u32 addr; /* of PORT and 227 */
	__u32 port;
};

struct ftp_scratch {
	__u8 text[FTP_TEXT];
	__u8 changed[FTP_TEXT];
	__u8 numbers[32];
	struct ftp_scan_state scan;
	struct expectation_key key;
	struct expectation row;
	struct expectation_key place; /* ftp_place.h */
	struct announcement announced;
	__u32 first_place; /* where the search begins */
	__u32 free_place; /* FTP_PER_CLIENT: there is none */
	bool is_own; /* free_place is the control connection's own */
	__u32 length; /* of text */
	__u32 at; /* its offset in the packet */
	__u32 written; /* bytes of numbers */
	__u32 shift; /* by how much the numbers grow, modulo 2^32 */
};
_Static_assert(sizeof(struct ftp_scratch) <= sizeof(struct packet_scratch),
	       "it has room");

static __always_inline struct ftp_scratch *ftp_scratch_get(void)
{
	__u32 use = SCRATCH_FTP;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

struct ftp_walk {
	struct ftp_scratch *s;
};

static __always_inline bool ftp_is_digit(__u8 byte)
{
	return byte >= '0' && byte <= '9';
}

/* Adds a digit to the present number. A number that is too large stays too large. */
static __always_inline void ftp_add_digit(struct ftp_scan_state *scan,
					  __u8 byte)
{
	scan->value =
		scan->value > 65535 ? 65536 : scan->value * 10 + (byte - '0');
	scan->digits++;
}

/* Reads a byte of a list of six numbers. After other text, the search begins again. Returns
 * whether the list has ended. */
static __always_inline bool ftp_scan_list(struct ftp_scan_state *scan,
					  __u8 byte, __u32 at)
{
	bool is_number;

	if (ftp_is_digit(byte)) {
		if (!scan->digits && !scan->numbers)
			scan->first = at;
		ftp_add_digit(scan, byte);
		return false;
	}
	is_number = scan->digits && scan->digits <= 3 && scan->value <= 255;
	if (is_number && scan->numbers < 4)
		scan->addr = scan->addr << 8 | scan->value;
	else if (is_number)
		scan->port = (scan->port << 8 | scan->value) & 0xffff;
	if (is_number && scan->numbers == 5 && byte != ',') {
		scan->end = at;
		return true;
	}
	if (is_number && byte == ',' && scan->numbers < 5) {
		scan->numbers++;
	} else {
		scan->numbers = 0;
		scan->addr = 0;
		scan->port = 0;
	}
	scan->digits = 0;
	scan->value = 0;
	return byte == '\n';
}

/* Reads a byte of fields between delimiters. Returns whether they have ended. */
static __always_inline bool ftp_scan_fields(struct ftp_scan_state *scan,
					    __u8 byte, __u32 at)
{
	if (byte == '\r' || byte == '\n')
		return true;
	if (!scan->delimiter) {
		if (scan->kind == FTP_EPRT && byte == ' ')
			return false;
		/* 1: the next byte is the delimiter */
		scan->delimiter = scan->kind == FTP_EPRT ? byte :
				  byte == '('		 ? 1 :
							   0;
		scan->numbers = scan->kind == FTP_EPRT;
		return false;
	}
	if (scan->delimiter == 1)
		scan->delimiter = byte;
	if (byte == scan->delimiter) {
		scan->numbers++;
		if (scan->numbers == 3)
			scan->first = at + 1;
		if (scan->numbers < 4)
			return false;
		if (scan->digits && scan->digits <= 5 && scan->value <= 65535) {
			scan->port = scan->value;
			scan->end = at;
		}
		return true;
	}
	if (scan->numbers < 3)
		return false;
	if (!ftp_is_digit(byte))
		return true;
	ftp_add_digit(scan, byte);
	return false;
}

static long ftp_scan_byte(__u32 i, struct ftp_walk *w)
{
	struct ftp_scratch *s = w->s;
	__u8 byte;

	if (i < s->scan.line + 4)
		return 0;
	if (i >= FTP_TEXT || i >= s->length)
		return 1;
	byte = s->text[i];
	return s->scan.kind == FTP_PORT || s->scan.kind == FTP_227 ?
		       ftp_scan_list(&s->scan, byte, i) :
		       ftp_scan_fields(&s->scan, byte, i);
}

/* Returns the type of a line by its beginning. */
static __always_inline enum ftp_kind ftp_kind_of(const __u8 *text)
{
	const __u32 word =
		(__u32)text[0] << 24 | text[1] << 16 | text[2] << 8 | text[3];

	if (word == ('2' << 24 | '2' << 16 | '7' << 8 | ' '))
		return FTP_227;
	if (word == ('2' << 24 | '2' << 16 | '9' << 8 | ' '))
		return FTP_229;
	if (word == ('2' << 24 | '3' << 16 | '4' << 8 | ' '))
		return FTP_234;
	if (text[4] != ' ')
		return FTP_OTHER;
	switch (word & 0xdfdfdfdf) { /* capital letters */
	case 'P' << 24 | 'O' << 16 | 'R' << 8 | 'T':
		return FTP_PORT;
	case 'E' << 24 | 'P' << 16 | 'R' << 8 | 'T':
		return FTP_EPRT;
	default:
		return FTP_OTHER;
	}
}

/* Looks for the end of a line, after which another announces a data connection, or TLS. */
static long ftp_find_line(__u32 i, struct ftp_walk *w)
{
	struct ftp_scratch *s = w->s;

	if (i >= FTP_TEXT - FTP_BEGINNING || i >= s->length)
		return 1;
	if (s->text[i] != '\n')
		return 0;
	s->scan.line = i + 1;
	s->scan.kind = ftp_kind_of(s->text + i + 1);
	return s->scan.kind != FTP_OTHER;
}

/* Reads the beginning of a segment's data. */
static __always_inline bool ftp_load(ctx_t *ctx, const struct packet *p,
				     struct ftp_scratch *s)
{
	const __u32 header = segment_header(ctx, p);
	__u32 at = p->l4 + header, last = p->l3 + p->length - at - 1;

	if (header < sizeof(struct tcphdr) ||
	    (__s32)last < 8) /* longer than any beginning */
		return false;
	if (last >= FTP_TEXT)
		last = FTP_TEXT - 1;
	/* 1 to FTP_TEXT, both bounds visible (verifier: bounds) */
	asm volatile("" : "+r"(last));
	if (last >= FTP_TEXT)
		return false;
	__builtin_memset(s->text, 0, sizeof(s->text));
	s->at = at;
	s->length = last + 1;
	return !bpf_skb_load_bytes(ctx, at, s->text, last + 1);
}

/* Reads the first line of a segment's data that announces a data connection, or TLS. Returns
 * false if there is none. Global (verifier: globals). */
__noinline __maybe_unused bool ftp_scan(ctx_t *ctx, const struct packet *p)
{
	struct ftp_scratch *s = ftp_scratch_get();
	struct ftp_walk w = { .s = s };

	if (!p || !s /* verifier: null */ || !ftp_load(ctx, p, s))
		return false;
	__builtin_memset(&s->scan, 0, sizeof(s->scan));
	s->scan.kind = ftp_kind_of(s->text);
	if (s->scan.kind == FTP_OTHER &&
	    s->text[0] >= ' ') /* records of TLS have no lines */
		bpf_loop(FTP_TEXT, ftp_find_line, &w, 0);
	if (s->scan.kind == FTP_OTHER || s->scan.kind == FTP_234)
		return s->scan.kind == FTP_234;
	bpf_loop(FTP_TEXT, ftp_scan_byte, &w, 0);
	return s->scan.end;
}

/* Appends a number below 65536, and what follows it. */
static __noinline void ftp_append(struct ftp_scratch *s, __u32 value,
				  __u8 after)
{
	__u32 at = s->written, part = 10000;
	bool begun = false;

	NO_UNROLL
	for (int i = 0; i < 5; i++) {
		__u32 digit = value / part;

		if (digit || begun || part == 1) {
			s->numbers[at++ & 31] = '0' + digit;
			begun = true;
		}
		value -= digit * part;
		part /= 10;
	}
	if (after)
		s->numbers[at++ & 31] = after;
	s->written = at;
}

/* Writes a byte of the changed line. Text between the code and the numbers loses its first
 * bytes, or gets spaces, so the line keeps its length. */
static long ftp_write_byte(__u32 i, struct ftp_walk *w)
{
	struct ftp_scratch *s = w->s;
	const __u32 first = s->scan.first - s->shift;
	const __u32 text = s->scan.line + 4;
	__u32 from = i;

	if (i >= FTP_TEXT)
		return 1;
	if (i >= first && i < s->scan.end) {
		s->changed[i] = s->numbers[(i - first) & 31];
		return 0;
	}
	if (i >= text && i < first) {
		from = i + s->shift;
		if (from - text >= FTP_TEXT) {
			s->changed[i] = ' ';
			return 0;
		}
	}
	asm volatile("" : "+r"(from)); /* keeps the mask (verifier: bounds) */
	s->changed[i] = s->text[from & (FTP_TEXT - 1)];
	return 0;
}

/* Stores the changed line in the packet. */
static __always_inline bool ftp_store(ctx_t *ctx, const struct packet *p,
				      struct ftp_scratch *s)
{
	__u32 last = s->length - 1;
	__s64 sum;

	asm volatile("" : "+r"(last)); /* verifier: bounds */
	if (last >= FTP_TEXT ||
	    bpf_skb_store_bytes(ctx, s->at, s->changed, last + 1, 0))
		return false;
	sum = bpf_csum_diff((void *)s->text, FTP_TEXT, (void *)s->changed,
			    FTP_TEXT, 0);
	return segment_sum(ctx, p, sum_fold(sum));
}

/* Replaces the numbers of the line that was read. addr: 0 if it has just a port. A line
 * whose text has no room for them stays as it is. Global (verifier: globals). */
__noinline __maybe_unused bool
ftp_write_numbers(ctx_t *ctx, const struct packet *p, __u32 addr, __u32 port)
{
	struct ftp_scratch *s = ftp_scratch_get();
	struct ftp_walk w = { .s = s };

	if (!p || !s) /* verifier: null */
		return false;
	s->written = 0;
	if (addr) {
		NO_UNROLL
		for (int bits = 24; bits >= 0; bits -= 8)
			ftp_append(s, addr >> bits & 0xff, ',');
		ftp_append(s, port >> 8 & 0xff, ',');
		ftp_append(s, port & 0xff, 0);
	} else {
		ftp_append(s, port & 0xffff, 0);
	}
	s->shift = s->written - (s->scan.end - s->scan.first);
	/* the bytes before the numbers stay: (||| or one, mostly a parenthesis */
	if ((__s32)(s->scan.first - s->shift - s->scan.line) < (addr ? 5 : 8))
		return true;
	bpf_loop(FTP_TEXT, ftp_write_byte, &w, 0);
	return ftp_store(ctx, p, s);
}

#endif
#endif
