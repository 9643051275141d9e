/*
 * muster-sbatch answers as sbatch where a shell loop submits job after job.
 *
 * A process whose runtime starts, as Go's does, costs as much time as half a
 * submission may take. This one starts like /bin/true: it reads the script,
 * carries the words and variables to the controller as they are, and prints
 * what comes back. What the words mean it does not know: the controller runs
 * the same sbatch, from the same table of options, that muster runs here.
 *
 * Of the options it knows only which of them take an argument (options.h,
 * generated from that table), to find the script among the words. Whatever is
 * not plain, and whatever the controller sends back, is run by muster, which
 * lies beside this program: nothing is decided here that muster would decide
 * differently.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "options.h"

enum {
	MOST_SCRIPT = 1 << 20, /* larger ones are muster's */
	MOST_CONFIG = 1 << 20,
	DIAL_SECONDS = 10,
	CALL_SECONDS = 60,
	CALL_WINDOW = 1 << 20, /* bytes of answer that are taken in advance */
	MOST_ANSWER = 16 << 20,
};

static const char method[] = "/muster.v1.Shell/Sbatch";

static char **words;

/* Runs muster, beside this program, with the same words. */
static void home(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "muster");
	char *slash;

	if (n > 0) {
		path[n] = 0;
		slash = strrchr(path, '/');
		strcpy(slash + 1, "muster");
		words[0] = "sbatch";
		execv(path, words);
		fprintf(stderr, "sbatch: error: %s: %s\n", path, strerror(errno));
	} else {
		fprintf(stderr, "sbatch: error: /proc/self/exe: %s\n", strerror(errno));
	}
	exit(1);
}

/* Ends after the request was sent and no answer came. */
static void lost(const char *why)
{
	const char *code = getenv("SLURM_EXIT_ERROR");
	char *end;
	long n;

	fprintf(stderr, "sbatch: error: Batch job submission failed: %s\n", why);
	fprintf(stderr, "sbatch: error: %s\n", TEXT_UNKNOWN);
	if (code && *code) {
		n = strtol(code, &end, 10);
		if (!*end)
			exit((int)n);
	}
	exit(1);
}

/* A message that grows. */
struct buffer {
	unsigned char *data;
	size_t used, room;
};

static void put(struct buffer *b, const void *data, size_t n)
{
	if (b->used + n > b->room) {
		b->room = 2 * (b->used + n) + 4096;
		b->data = realloc(b->data, b->room);
		if (!b->data)
			home();
	}
	memcpy(b->data + b->used, data, n);
	b->used += n;
}

static void put_number(struct buffer *b, uint64_t v)
{
	unsigned char c[10];
	size_t n = 0;

	for (; v > 127; v >>= 7)
		c[n++] = v | 128;
	c[n++] = v;
	put(b, c, n);
}

/* A field of a protobuf message that holds bytes. */
static void put_field(struct buffer *b, int field, const void *data, size_t n)
{
	put_number(b, field << 3 | 2);
	put_number(b, n);
	put(b, data, n);
}

/* A field with the strings of a list, a NUL after each. */
static void put_list(struct buffer *b, int field, char **list)
{
	size_t n = 0;
	char **p;

	for (p = list; *p; p++)
		n += strlen(*p) + 1;
	put_number(b, field << 3 | 2);
	put_number(b, n);
	for (p = list; *p; p++)
		put(b, *p, strlen(*p) + 1);
}

static const struct option *by_name(const char *name, size_t n)
{
	size_t i;

	for (i = 0; i < sizeof options / sizeof *options; i++)
		if (!strncmp(options[i].name, name, n) && !options[i].name[n])
			return &options[i];
	return NULL;
}

static const struct option *by_letter(char c)
{
	size_t i;

	for (i = 0; i < sizeof options / sizeof *options; i++)
		if (options[i].letter == c)
			return &options[i];
	return NULL;
}

/* The script among the words; NULL with --wrap. Anything that is not plain goes home. */
static char *find_script(char **w)
{
	int wrap = 0;

	for (; *w; w++) {
		const char *a = *w, *value;
		const struct option *o = NULL;

		if (a[0] != '-')
			return wrap ? NULL : *w;
		if (!a[1] || !strcmp(a, "--"))
			home();
		if (a[1] == '-') {
			value = strchrnul(a, '=');
			o = by_name(a + 2, value - a - 2);
			if (!o)
				home();
			wrap |= !strcmp(o->name, "wrap");
			if (o->takes == ARGUMENT && !*value && w[1])
				w++;
			continue;
		}
		for (a++; *a; a++) {
			o = by_letter(*a);
			if (!o)
				home();
			if (o->takes == MAYBE)
				break;
			if (o->takes == ARGUMENT) {
				if (!a[1] && w[1])
					w++;
				break;
			}
		}
	}
	if (!wrap)
		home(); /* the script comes on standard input */
	return NULL;
}

/* Reads a whole file; NULL when there is none, or it is too large. */
static char *read_file(const char *path, size_t most, size_t *n)
{
	int f = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *data = NULL;
	ssize_t got;

	*n = 0;
	if (f < 0)
		return NULL;
	if (!fstat(f, &st) && S_ISREG(st.st_mode) && (size_t)st.st_size <= most && (data = malloc(st.st_size + 2))) {
		while (*n <= (size_t)st.st_size && (got = read(f, data + *n, st.st_size + 1 - *n)) > 0)
			*n += got;
		if (*n != (size_t)st.st_size) { /* it is being written */
			free(data);
			data = NULL;
		} else {
			data[*n] = 0;
		}
	}
	close(f);
	return data;
}

/* Where the script is: in this folder or where its path says; one that is looked for in $PATH is muster's. */
static void put_script(struct buffer *b, const char *arg, const char *dir)
{
	struct buffer path = { 0 };
	char *data;
	size_t n;

	if (arg[0] != '/') {
		n = strlen(dir);
		put(&path, dir, n - (dir[n - 1] == '/'));
		put(&path, "/", 1);
	}
	put(&path, arg, strlen(arg) + 1);
	data = read_file((char *)path.data, MOST_SCRIPT, &n);
	if (!data)
		home();
	put_field(b, 7, arg, strlen(arg));
	put_field(b, 8, path.data, path.used - 1);
	put_field(b, 9, data, n);
}

/* This folder, by the shell's name of it if that is right. */
static const char *work_dir(void)
{
	static char dir[PATH_MAX];
	const char *shell = getenv("PWD");
	struct stat a, b;

	if (shell && shell[0] == '/' && !stat(shell, &a) && !stat(".", &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		return shell;
	if (!getcwd(dir, sizeof dir) || dir[0] != '/')
		home();
	return dir;
}

static void put_limits(struct buffer *b)
{
	static const struct {
		const char *name;
		int id;
	} limits[] = {
		{ "AS", RLIMIT_AS }, { "CORE", RLIMIT_CORE }, { "CPU", RLIMIT_CPU }, { "DATA", RLIMIT_DATA }, { "FSIZE", RLIMIT_FSIZE },
		{ "MEMLOCK", RLIMIT_MEMLOCK }, { "NOFILE", RLIMIT_NOFILE }, { "NPROC", RLIMIT_NPROC }, { "RSS", RLIMIT_RSS }, { "STACK", RLIMIT_STACK },
	};
	struct rlimit r;
	size_t i;

	for (i = 0; i < sizeof limits / sizeof *limits; i++) {
		struct buffer m = { 0 };

		if (getrlimit(limits[i].id, &r))
			continue;
		put_field(&m, 1, limits[i].name, strlen(limits[i].name));
		if (r.rlim_cur) {
			put_number(&m, 3 << 3);
			put_number(&m, r.rlim_cur); /* RLIM_INFINITY is -1 */
		}
		put_field(b, 6, m.data, m.used);
		free(m.data);
	}
}

static void make_request(struct buffer *b)
{
	char host[HOST_NAME_MAX + 1] = "";
	const char *dir = work_dir();
	mode_t mask = umask(022);
	char *script;
	int nice;

	umask(mask);
	script = find_script(words + 1);
	if (gethostname(host, sizeof host - 1))
		home();
	put_list(b, 1, words + 1);
	put_list(b, 2, environ);
	put_field(b, 3, dir, strlen(dir));
	put_field(b, 4, host, strlen(host));
	if (mask) {
		put_number(b, 5 << 3);
		put_number(b, mask);
	}
	put_limits(b);
	if (script)
		put_script(b, script, dir);
	nice = getpriority(PRIO_PROCESS, 0);
	if (nice) {
		put_number(b, 10 << 3);
		put_number(b, (unsigned long long)(long long)nice);
	}
}

/* The value of a key at the left margin of muster.yaml; only absolute paths without YAML's marks are read here. */
static int plain_value(const char *yaml, const char *key, char *into, size_t room)
{
	size_t k = strlen(key), n;
	const char *p = yaml;

	into[0] = 0;
	for (; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
		if (strncmp(p, key, k) || p[k] != ':')
			continue;
		p += k + 1;
		p += strspn(p, " \t");
		n = strcspn(p, " \t\r\n\"'\\&*|>{[#");
		if (p[0] != '/' || n >= room || !strchr(" \t\r\n", p[n]))
			return -1;
		memcpy(into, p, n);
		into[n] = 0;
		p += n;
		p += strspn(p, " \t\r");
		if (*p && *p != '\n' && *p != '#')
			return -1;
	}
	return 0;
}

/* The controller's socket: $MUSTER_SOCKET, else what muster.yaml says, else the default. */
static void find_socket(char *into, size_t room)
{
	const char *s = getenv("MUSTER_SOCKET"), *config = getenv("MUSTER_CONFIG");
	const char *token = getenv("SLURM_JWT");
	char *yaml, dir[108];
	size_t n;

	if (getenv("MUSTER_SERVER") || (token && *token))
		home();	/* muster shows the token, or says what is wrong */
	if (s && *s) {
		if (strlen(s) >= room)
			home();
		strcpy(into, s);
		return;
	}
	yaml = read_file(config && *config ? config : DEFAULT_CONFIG, MOST_CONFIG, &n);
	if (!yaml) {
		if ((config && *config) || errno != ENOENT)
			home();
		strcpy(into, DEFAULT_SOCKET);
		return;
	}
	if (strlen(yaml) != n || plain_value(yaml, "socket", into, room) || plain_value(yaml, "run_dir", dir, sizeof dir))
		home();
	if (!into[0] && snprintf(into, room, "%s/muster.sock", dir[0] ? dir : "") >= (int)room)
		home();
	if (!dir[0] && !strcmp(into, "/muster.sock"))
		strcpy(into, DEFAULT_SOCKET);
	free(yaml);
}

static void patience(int s, int what, int seconds)
{
	struct timeval t = { .tv_sec = seconds };

	if (setsockopt(s, SOL_SOCKET, what, &t, sizeof t))
		home();
}

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	find_socket(a.sun_path, sizeof a.sun_path);
	if (s < 0)
		home();
	patience(s, SO_SNDTIMEO, DIAL_SECONDS);
	if (connect(s, (struct sockaddr *)&a, sizeof a))
		home(); /* it says why the controller cannot be reached */
	patience(s, SO_RCVTIMEO, CALL_SECONDS);
	return s;
}

/* Sends the preface and one request in the framed protocol (internal/transport/framed). */
static void send_request(int s, const struct buffer *message)
{
	struct buffer head = { 0 }, frame = { 0 };
	unsigned char length[4];
	size_t n, at = 0;
	ssize_t sent;

	put(&head, "\1\1", 2); /* a request, the first */
	put_number(&head, CALL_SECONDS * UINT64_C(1000000));
	put_number(&head, CALL_WINDOW);
	put_number(&head, sizeof method - 1);
	put(&head, method, sizeof method - 1);
	put_number(&head, 0); /* no headers */
	n = head.used + message->used;
	if (n > MOST_ANSWER)
		home();
	length[0] = n >> 24, length[1] = n >> 16, length[2] = n >> 8, length[3] = n;
	put(&frame, "MUSTERF1", 8);
	put(&frame, length, 4);
	put(&frame, head.data, head.used);
	put(&frame, message->data, message->used);
	for (; at < frame.used; at += sent) {
		sent = send(s, frame.data + at, frame.used - at, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			sent = 0;
		else if (sent <= 0)
			home(); /* a part of a request is none */
	}
	free(head.data);
	free(frame.data);
}

static void receive(int s, unsigned char *into, size_t n)
{
	ssize_t got;

	for (; n > 0; into += got, n -= got) {
		got = recv(s, into, n, 0);
		if (got < 0 && errno == EINTR)
			got = 0;
		else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			lost(TEXT_TIMEOUT);
		else if (got <= 0)
			lost(TEXT_UNREACHABLE);
	}
}

static uint64_t take_number(const unsigned char **p, const unsigned char *end)
{
	uint64_t v = 0;
	int shift = 0;

	for (; *p < end && shift < 64; shift += 7) {
		unsigned char c = *(*p)++;

		v |= (uint64_t)(c & 127) << shift;
		if (c < 128)
			return v;
	}
	lost("the answer cannot be read");
	return 0;
}

static void print(FILE *to, const unsigned char *data, size_t n)
{
	if (n && (fwrite(data, 1, n, to) != n || fflush(to))) {
		fprintf(stderr, "sbatch: error: writing the output: %s\n", strerror(errno));
		exit(1);
	}
}

/* Does what a TypedAnswer says. */
static void obey(const unsigned char *p, const unsigned char *end)
{
	const unsigned char *out = NULL, *err = NULL;
	size_t out_size = 0, err_size = 0;
	uint64_t code = 0;

	while (p < end) {
		uint64_t tag = take_number(&p, end), v = take_number(&p, end);

		if ((tag & 7) == 2 && v > (uint64_t)(end - p))
			lost("the answer cannot be read");
		switch (tag) {
		case 1 << 3:
			if (v)
				home();
			break;
		case 2 << 3:
			code = v;
			break;
		case 3 << 3 | 2:
			out = p, out_size = v;
			break;
		case 4 << 3 | 2:
			err = p, err_size = v;
			break;
		}
		if ((tag & 7) == 2)
			p += v;
	}
	print(stderr, err, err_size);
	print(stdout, out, out_size);
	exit((int)code);
}

/* What an error of the transport means for the job: it was not looked at, or nobody knows. */
static void refused(const unsigned char *p, const unsigned char *end)
{
	enum { CANCELED = 1, UNKNOWN = 2, DEADLINE = 4, INTERNAL = 13 };
	uint64_t code = 0;

	if (p < end && *p++ == 1 << 3)
		code = take_number(&p, end);
	switch (code) {
	case DEADLINE:
		lost(TEXT_TIMEOUT);
		break;
	case CANCELED:
	case UNKNOWN:
	case INTERNAL:
		lost("the controller failed; its log has the details");
		break;
	}
	home();
}

static void receive_answer(int s)
{
	enum { MESSAGE = 4, END = 5, DRAIN = 6 };

	for (;;) {
		unsigned char length[4], *frame;
		const unsigned char *p, *end;
		uint64_t id;
		size_t n;

		receive(s, length, 4);
		n = (size_t)length[0] << 24 | length[1] << 16 | length[2] << 8 | length[3];
		if (n < 2 || n > MOST_ANSWER || !(frame = malloc(n)))
			lost("the answer cannot be read");
		receive(s, frame, n);
		p = frame + 1, end = frame + n;
		id = take_number(&p, end);
		if (frame[0] == MESSAGE && id == 1 && p < end)
			obey(p + 1, end); /* behind the flags */
		if (frame[0] == END && id == 1)
			refused(p, end);
		if (frame[0] == DRAIN && id < 1)
			home(); /* it was not looked at */
		free(frame);
	}
}

int main(int argc, char **argv)
{
	struct buffer request = { 0 };
	int s;

	if (argc < 1)
		return 1;
	words = argv;
	make_request(&request);
	s = dial();
	send_request(s, &request);
	receive_answer(s);
}
