// SPDX-License-Identifier: Apache-2.0
// An SCTP server or client of tests, by libusrsctp over raw IP sockets: the kernel needs no SCTP.
//
//	peer serve NAME PORT
//		greets each association with NAME, then echoes messages. Prints "ID up" for each, and
//		how it ends: "ID closed" by SHUTDOWN, "ID aborted" otherwise.
//	peer connect
//		reads commands from standard input:
//			open ID ADDRESS PORT [FROM...]
//			send ID WORD
//			bulk ID N		N messages of 1,000 bytes, no two of them equal
//			close ID
//		and prints "ID up", "ID got WORD", "ID bulk N" once all have come back unchanged,
//		"ID closed", "ID aborted", "ID failed WHY".
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <usrsctp.h>

#define MESSAGE 1000
#define MAX_IDS 1024

struct association {
	int id;
	struct socket *socket;
	struct sockaddr_storage to;
	struct sockaddr_storage from[8];
	int froms;
	unsigned sent, got; // numbers of messages by bulk commands
};

static const char *name; // of this server; unused by a client
static struct association *all[MAX_IDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void say(int id, const char *what, const char *more)
{
	pthread_mutex_lock(&lock);
	printf("%d %s%s%s\n", id, what, *more ? " " : "", more);
	fflush(stdout);
	pthread_mutex_unlock(&lock);
}

static bool parse(const char *address, int port, struct sockaddr_storage *s)
{
	struct sockaddr_in *v4 = (void *)s;
	struct sockaddr_in6 *v6 = (void *)s;

	memset(s, 0, sizeof(*s));
	if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return true;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	return inet_pton(AF_INET6, address, &v6->sin6_addr) == 1;
}

// Paths fail within seconds, and HEARTBEATs are frequent.
static void hurry(struct socket *s)
{
	struct sctp_rtoinfo rto = { .srto_initial = 200, .srto_min = 100, .srto_max = 1000 };
	struct sctp_paddrparams paths = {
		.spp_hbinterval = 500,
		.spp_flags = SPP_HB_ENABLE,
		.spp_pathmaxrxt = 2,
	};
	struct sctp_assocparams tries = { .sasoc_asocmaxrxt = 60 };
	int on = 1;

	usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_RTOINFO, &rto, sizeof(rto));
	usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &paths, sizeof(paths));
	usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_ASSOCINFO, &tries, sizeof(tries));
	usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof(on));
}

static ssize_t send_message(struct association *a, const void *bytes, size_t length)
{
	return usrsctp_sendv(a->socket, bytes, length, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0);
}

static ssize_t receive(struct association *a, void *bytes, size_t length)
{
	struct sctp_rcvinfo info;
	socklen_t from_length = 0, info_length = sizeof(info);
	unsigned type;
	int flags = 0;

	return usrsctp_recvv(a->socket, bytes, length, NULL, &from_length, &info, &info_length,
			     &type, &flags);
}

static void ended(struct association *a, ssize_t n)
{
	say(a->id, n ? "aborted" : "closed", "");
	usrsctp_close(a->socket);
}

static void *echo(void *arg)
{
	struct association *a = arg;
	char message[MESSAGE + 1];
	ssize_t n;

	hurry(a->socket);
	say(a->id, "up", "");
	n = send_message(a, name, strlen(name));
	while (n > 0 && (n = receive(a, message, sizeof(message))) > 0)
		n = send_message(a, message, n);
	ended(a, n);
	return NULL;
}

static void fill(char *message, unsigned n)
{
	for (int i = 0; i < MESSAGE; i++)
		message[i] = n * 7 + i * 13 + (i == MESSAGE - 1 ? n >> 8 : 0);
}

static void handle(struct association *a, const char *message, ssize_t n)
{
	char expected[MESSAGE], word[16];

	if (n != MESSAGE) {
		say(a->id, "got", message);
		return;
	}
	fill(expected, a->got++);
	if (memcmp(expected, message, MESSAGE))
		say(a->id, "failed", "a message has changed");
	if (a->got == a->sent) {
		snprintf(word, sizeof(word), "%u", a->got);
		say(a->id, "bulk", word);
	}
}

static bool connect_from(struct association *a)
{
	for (int i = 0; i < a->froms; i++)
		if (usrsctp_bindx(a->socket, (struct sockaddr *)&a->from[i], 1,
				  SCTP_BINDX_ADD_ADDR))
			return false;
	return !usrsctp_connect(a->socket, (struct sockaddr *)&a->to,
				a->to.ss_family == AF_INET ? sizeof(struct sockaddr_in) :
							     sizeof(struct sockaddr_in6));
}

static void *run_client(void *arg)
{
	struct association *a = arg;
	char message[MESSAGE + 1];
	ssize_t n;

	if (!connect_from(a)) {
		say(a->id, "failed", strerror(errno));
		return NULL;
	}
	say(a->id, "up", "");
	while ((n = receive(a, message, MESSAGE)) > 0) {
		message[n] = 0;
		handle(a, message, n);
	}
	ended(a, n);
	return NULL;
}

static void start(void *(*run)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, arg) || pthread_detach(thread))
		exit(1);
}

static struct socket *open_socket(int family)
{
	struct socket *s =
		usrsctp_socket(family, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);

	if (!s)
		exit(1);
	hurry(s);
	return s;
}

static void *bulk(void *arg)
{
	struct association *a = arg;
	unsigned first = a->got, end = a->sent;
	char message[MESSAGE];

	for (unsigned i = first; i < end; i++) {
		fill(message, i);
		if (send_message(a, message, MESSAGE) != MESSAGE) {
			say(a->id, "failed", strerror(errno));
			break;
		}
	}
	return NULL;
}

static void open_association(int id, char *words)
{
	struct association *a = calloc(1, sizeof(*a));
	char *next = NULL, *address = strtok_r(words, " \n", &next),
	     *port = strtok_r(NULL, " \n", &next), *from;

	if (!a || !address || !port || !parse(address, atoi(port), &a->to))
		exit(1);
	while (a->froms < 8 && (from = strtok_r(NULL, " \n", &next)))
		if (!parse(from, 0, &a->from[a->froms++]))
			exit(1);
	a->id = id;
	a->socket = open_socket(a->to.ss_family);
	all[id] = a;
	start(run_client, a);
}

static void command(char *line)
{
	char verb[8] = "", *rest;
	int id = -1, used = 0;

	if (sscanf(line, "%7s %d %n", verb, &id, &used) < 2 || id < 0 || id >= MAX_IDS)
		exit(1);
	rest = line + used;
	rest[strcspn(rest, "\n")] = 0;
	if (!strcmp(verb, "open")) {
		open_association(id, rest);
		return;
	}
	if (!all[id])
		exit(1);
	if (!strcmp(verb, "send")) {
		send_message(all[id], rest, strlen(rest));
	} else if (!strcmp(verb, "bulk")) {
		all[id]->sent = all[id]->got + atoi(rest);
		start(bulk, all[id]);
	} else if (!strcmp(verb, "close")) {
		usrsctp_shutdown(all[id]->socket, SHUT_WR);
	}
}

static void serve(int port)
{
	struct sockaddr_storage any;
	struct socket *s = open_socket(AF_INET6), *accepted;
	int off = 0;

	usrsctp_setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	parse("::", port, &any);
	if (usrsctp_bind(s, (struct sockaddr *)&any, sizeof(struct sockaddr_in6)) ||
	    usrsctp_listen(s, 256)) {
		perror("listen");
		exit(1);
	}
	say(0, "listening", "");
	for (int id = 0; (accepted = usrsctp_accept(s, NULL, NULL)); id++) {
		struct association *a = calloc(1, sizeof(*a));

		if (!a)
			exit(1);
		a->id = id;
		a->socket = accepted;
		start(echo, a);
	}
}

int main(int argc, char **argv)
{
	char line[256];

	usrsctp_init(0, NULL, NULL);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	usrsctp_sysctl_set_sctp_asconf_enable(0);
	if (argc == 4 && !strcmp(argv[1], "serve")) {
		name = argv[2];
		serve(atoi(argv[3]));
		return 1;
	}
	if (argc != 2 || strcmp(argv[1], "connect"))
		return 2;
	while (fgets(line, sizeof(line), stdin))
		command(line);
	return 0;
}
