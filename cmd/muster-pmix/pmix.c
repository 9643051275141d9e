/*
 * muster-pmix serves PMIx to the tasks of a step on one node (srun --mpi=pmix).
 * It is the only program of Muster that links OpenPMIx, so that a cluster without
 * that library lacks nothing else.
 *
 *   muster-pmix --version      names the version of the library that is loaded
 *   muster-pmix serve          for the shepherd: serves until its standard input ends
 *
 * Its standard input is a socket to the process that minds the step. The first
 * message says what the step is; then it answers with the variables of each task
 * here. What the library asks of its host (a fence, data of a task on another
 * node) leaves as a message, and the minder brings the answer. So this program
 * speaks with nobody but its minder and the tasks of its own node.
 *
 * nodeagent/plan/pmix is the other end and documents the messages.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pmix.h>
#include <pmix_server.h>

/* The kinds of messages, as nodeagent/plan/pmix has them. */
enum kind {
	SETUP = 1, /* minder: what the step is */
	VARIABLES, /* here: a task's */
	READY,     /* here: the tasks can begin */
	FENCE,     /* here: tasks of this node are at a fence */
	PASSED,    /* minder: all tasks are */
	ASK,       /* here: data of a task elsewhere is wanted; minder: that of one here */
	ANSWER,    /* the data, in the other direction */
	ABORT,     /* here: a task gives up */
	FAILED,    /* here: why it cannot serve */
};

#define MAX_MESSAGE (64u << 20)

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/* ---- messages ---- */

struct buffer {
	char *data;
	size_t size, room;
};

static void append(struct buffer *b, const void *data, size_t size)
{
	if (b->size + size > b->room) {
		b->room = 2 * (b->size + size) + 64;
		b->data = realloc(b->data, b->room);
		if (!b->data)
			abort();
	}
	if (size)
		memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void append_number(struct buffer *b, uint32_t n)
{
	unsigned char le[4] = { n, n >> 8, n >> 16, n >> 24 };
	append(b, le, sizeof le);
}

static uint32_t number_at(const char *p)
{
	const unsigned char *u = (const unsigned char *)p;
	return u[0] | u[1] << 8 | u[2] << 16 | (uint32_t)u[3] << 24;
}

/* begin starts a message; send_message completes and sends it. */
static struct buffer begin(enum kind kind)
{
	struct buffer b = { 0 };
	unsigned char k = kind;
	append_number(&b, 0);
	append(&b, &k, 1);
	return b;
}

static void send_message(struct buffer *b)
{
	uint32_t n = b->size - 4;
	unsigned char le[4] = { n, n >> 8, n >> 16, n >> 24 };
	memcpy(b->data, le, 4);
	pthread_mutex_lock(&writing);
	for (size_t at = 0; at < b->size;) {
		ssize_t w = write(STDIN_FILENO, b->data + at, b->size - at);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			break; /* the minder is gone, and the reader sees it too */
		at += w;
	}
	pthread_mutex_unlock(&writing);
	free(b->data);
}

static void fail(const char *format, ...)
{
	char text[500];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	struct buffer b = begin(FAILED);
	append(&b, text, strlen(text));
	send_message(&b);
	exit(1);
}

/* read_all reads a number of bytes; false at the end. */
static bool read_all(void *to, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = read(STDIN_FILENO, (char *)to + at, size - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
	}
	return true;
}

/* read_message reads one message; its body ends with a zero byte more. */
static bool read_message(enum kind *kind, char **body, size_t *size)
{
	char head[5];
	if (!read_all(head, sizeof head))
		return false;
	uint32_t n = number_at(head);
	if (n < 1 || n > MAX_MESSAGE)
		return false;
	*kind = head[4];
	*size = n - 1;
	*body = malloc(*size + 1);
	if (!*body)
		return false;
	(*body)[*size] = 0;
	return read_all(*body, *size);
}

/* ---- what waits for the minder ---- */

/* waiting is a question of the library's that the minder answers by its number. */
struct waiting {
	uint32_t number;
	pmix_modex_cbfunc_t done;
	void *data;
	struct waiting *next;
};

static pthread_mutex_t waiters = PTHREAD_MUTEX_INITIALIZER;
static struct waiting *first_waiting;
static uint32_t last_number;

static uint32_t await(pmix_modex_cbfunc_t done, void *data)
{
	struct waiting *w = malloc(sizeof *w);
	if (!w)
		abort();
	pthread_mutex_lock(&waiters);
	*w = (struct waiting){ ++last_number, done, data, first_waiting };
	first_waiting = w;
	uint32_t number = w->number;
	pthread_mutex_unlock(&waiters);
	return number;
}

/* answer_waiting gives the library what it waits for. The body is the library's
 * until it releases it. */
static void answer_waiting(char *body, size_t size)
{
	if (size < 8) {
		free(body);
		return;
	}
	uint32_t number = number_at(body);
	pthread_mutex_lock(&waiters);
	struct waiting **at = &first_waiting;
	while (*at && (*at)->number != number)
		at = &(*at)->next;
	struct waiting *w = *at;
	if (w)
		*at = w->next;
	pthread_mutex_unlock(&waiters);
	if (!w) { /* a repeat */
		free(body);
		return;
	}
	w->done((int32_t)number_at(body + 4), body + 8, size - 8, w->data, free, body);
	free(w);
}

/* ---- what the library asks of its host ---- */

static pmix_nspace_t name_space;

static pmix_status_t connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *data)
{
	(void)proc, (void)object, (void)done, (void)data;
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t aborted(const pmix_proc_t *proc, void *object, int status, const char text[],
	pmix_proc_t procs[], size_t count, pmix_op_cbfunc_t done, void *data)
{
	(void)object, (void)procs, (void)count, (void)done, (void)data;
	struct buffer b = begin(ABORT);
	append_number(&b, proc ? proc->rank : 0);
	append_number(&b, (uint32_t)status);
	if (text)
		append(&b, text, strlen(text));
	send_message(&b);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t fence(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
	char *data, size_t size, pmix_modex_cbfunc_t done, void *object)
{
	(void)info, (void)infos;
	bool all = false;
	for (size_t i = 0; i < count; i++) {
		if (strncmp(procs[i].nspace, name_space, PMIX_MAX_NSLEN) != 0)
			return PMIX_ERR_NOT_SUPPORTED; /* tasks of another step */
		all = all || procs[i].rank == PMIX_RANK_WILDCARD;
	}
	if (size > MAX_MESSAGE / 2)
		return PMIX_ERR_OUT_OF_RESOURCE;
	struct buffer b = begin(FENCE);
	append_number(&b, await(done, object));
	append_number(&b, all ? 0 : count);
	for (size_t i = 0; !all && i < count; i++)
		append_number(&b, procs[i].rank);
	append(&b, data, size);
	send_message(&b);
	return PMIX_SUCCESS;
}

static pmix_status_t direct_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t infos,
	pmix_modex_cbfunc_t done, void *object)
{
	(void)info, (void)infos;
	if (strncmp(proc->nspace, name_space, PMIX_MAX_NSLEN) != 0)
		return PMIX_ERR_NOT_SUPPORTED;
	struct buffer b = begin(ASK);
	append_number(&b, await(done, object));
	append_number(&b, proc->rank);
	send_message(&b);
	return PMIX_SUCCESS;
}

static pmix_server_module_t host = {
	.client_connected = connected,
	.client_finalized = connected,
	.abort = aborted,
	.fence_nb = fence,
	.direct_modex = direct_modex,
};

/* answer_ask sends what a task here has put to who asked for it. */
static void answer_ask(pmix_status_t status, char *data, size_t size, void *object)
{
	struct buffer b = begin(ANSWER);
	append_number(&b, (uint32_t)(uintptr_t)object);
	append_number(&b, (uint32_t)status);
	append(&b, data, size);
	send_message(&b);
}

static void asked(const char *body, size_t size)
{
	if (size < 8)
		return;
	void *number = (void *)(uintptr_t)number_at(body);
	pmix_proc_t proc;
	PMIX_LOAD_PROCID(&proc, name_space, number_at(body + 4));
	pmix_status_t rc = PMIx_server_dmodex_request(&proc, answer_ask, number);
	if (rc != PMIX_SUCCESS)
		answer_ask(rc, NULL, 0, number);
}

/* ---- the beginning ---- */

/* The setup of a step, as text. */
static char *hosts, *ranks_of_hosts, *own_host, *folder, *base;
static uint32_t size_of_step, place, local_count, *local_ranks;

static char *word(char *body, const char *name)
{
	size_t n = strlen(name);
	for (char *line = body; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, name, n) == 0 && line[n] == '=')
			return strndup(line + n + 1, strcspn(line + n + 1, "\n"));
	fail("the setup lacks %s", name);
	return NULL;
}

static uint32_t number_of(char *body, const char *name)
{
	char *text = word(body, name);
	uint32_t n = strtoul(text, NULL, 10);
	free(text);
	return n;
}

/* done is what a call of the library waits for. */
struct done {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool over;
	pmix_status_t status;
};

static void finish(pmix_status_t status, void *object)
{
	struct done *d = object;
	pthread_mutex_lock(&d->lock);
	d->over = true;
	d->status = status;
	pthread_cond_signal(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static pmix_status_t await_done(struct done *d, pmix_status_t rc)
{
	if (rc == PMIX_OPERATION_SUCCEEDED)
		return PMIX_SUCCESS;
	if (rc != PMIX_SUCCESS)
		return rc;
	pthread_mutex_lock(&d->lock);
	while (!d->over)
		pthread_cond_wait(&d->changed, &d->lock);
	pthread_mutex_unlock(&d->lock);
	return d->status;
}

#define DONE { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, PMIX_SUCCESS }

static void check(const char *what, pmix_status_t rc)
{
	if (rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED)
		fail("%s: %s", what, PMIx_Error_string(rc));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void remove_folder(void)
{
	if (folder)
		nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* make_folder makes the folder in which the library keeps what its clients map. The
 * shepherd removes it by its name where this program is killed. */
static void make_folder(void)
{
	folder = strdup(base);
	if (mkdir(folder, 0700) == 0)
		return;
	struct stat st;
	if (errno == EEXIST && lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid()) {
		remove_folder(); /* of a step that was killed */
		if (mkdir(folder, 0700) == 0)
			return;
	}
	free(folder); /* somebody else has made one of that name */
	folder = malloc(strlen(base) + 8);
	sprintf(folder, "%s.XXXXXX", base);
	if (!mkdtemp(folder)) {
		char why[300];
		snprintf(why, sizeof why, "%s: %s", base, strerror(errno));
		folder = NULL;
		fail("cannot make a folder for PMIx: %s", why);
	}
}

/* facts is a list of infos that grows. */
struct facts {
	pmix_info_t *list;
	size_t count, room;
};

static pmix_info_t *more(struct facts *f)
{
	if (f->count == f->room) {
		pmix_info_t *bigger;
		f->room = 2 * f->room + 8;
		PMIX_INFO_CREATE(bigger, f->room);
		for (size_t i = 0; i < f->count; i++)
			bigger[i] = f->list[i]; /* what it points at moves along */
		free(f->list);
		f->list = bigger;
	}
	return &f->list[f->count++];
}

static void add_text(struct facts *f, const char *key, const char *text)
{
	PMIX_INFO_LOAD(more(f), key, text, PMIX_STRING);
}

static void add_number(struct facts *f, const char *key, uint32_t n)
{
	PMIX_INFO_LOAD(more(f), key, &n, PMIX_UINT32);
}

static void add_rank(struct facts *f, const char *key, pmix_rank_t n)
{
	PMIX_INFO_LOAD(more(f), key, &n, PMIX_PROC_RANK);
}

static void add_short(struct facts *f, const char *key, uint16_t n)
{
	PMIX_INFO_LOAD(more(f), key, &n, PMIX_UINT16);
}

/* add_array adds facts as one, which takes them over. */
static void add_array(struct facts *f, const char *key, struct facts *in)
{
	pmix_info_t *info = more(f);
	PMIX_LOAD_KEY(info->key, key);
	info->value.type = PMIX_DATA_ARRAY;
	pmix_data_array_t *array = calloc(1, sizeof *array);
	if (!array)
		abort();
	*array = (pmix_data_array_t){ .type = PMIX_INFO, .size = in->count, .array = in->list };
	info->value.data.darray = array;
}

/* describe_tasks gives the place of each task of the step: ranks_of_hosts is
 * "0,2;1,3", the ranks of each host. */
static void describe_tasks(struct facts *f)
{
	char *list = strdup(ranks_of_hosts), *rest = list, *names = strdup(hosts), *left = names;
	for (uint32_t node = 0; rest; node++) {
		char *ranks = strsep(&rest, ";"), *name = strsep(&left, ",");
		uint16_t local = 0;
		while (ranks && *ranks) {
			uint32_t rank = strtoul(strsep(&ranks, ","), NULL, 10);
			struct facts one = { 0 };
			add_rank(&one, PMIX_RANK, rank);
			add_number(&one, PMIX_APPNUM, 0);
			add_rank(&one, PMIX_GLOBAL_RANK, rank);
			add_rank(&one, PMIX_APP_RANK, rank);
			add_short(&one, PMIX_LOCAL_RANK, local);
			add_short(&one, PMIX_NODE_RANK, local);
			add_number(&one, PMIX_NODEID, node);
			if (name)
				add_text(&one, PMIX_HOSTNAME, name);
			if (node == place) {
				char path[4096];
				snprintf(path, sizeof path, "%s/step/%u", folder, rank);
				mkdir(path, 0700);
				add_text(&one, PMIX_PROCDIR, path);
			}
			add_array(f, PMIX_PROC_DATA, &one);
			local++;
		}
	}
	free(list);
	free(names);
}

static void describe_step(struct facts *f)
{
	char path[4096], *map, *peers, number[16];
	snprintf(path, sizeof path, "%s/step", folder);
	if (mkdir(path, 0700) != 0)
		fail("cannot make %s: %s", path, strerror(errno));
	add_text(f, PMIX_TMPDIR, folder);
	add_text(f, PMIX_NSDIR, path);
	bool ours = true;
	PMIX_INFO_LOAD(more(f), PMIX_TDIR_RMCLEAN, &ours, PMIX_BOOL);
	add_text(f, PMIX_JOBID, name_space);
	add_number(f, PMIX_UNIV_SIZE, size_of_step);
	add_number(f, PMIX_JOB_SIZE, size_of_step);
	add_number(f, PMIX_JOB_NUM_APPS, 1);
	add_number(f, PMIX_APP_SIZE, size_of_step);
	add_number(f, PMIX_MAX_PROCS, size_of_step);
	add_number(f, PMIX_LOCAL_SIZE, local_count);
	add_number(f, PMIX_NODE_SIZE, local_count);
	add_rank(f, PMIX_LOCALLDR, local_ranks[0]);
	struct buffer b = { 0 };
	for (uint32_t i = 0; i < local_count; i++) {
		snprintf(number, sizeof number, "%s%u", i ? "," : "", local_ranks[i]);
		append(&b, number, strlen(number));
	}
	append(&b, "", 1);
	peers = b.data;
	add_text(f, PMIX_LOCAL_PEERS, peers);
	free(peers);
	add_text(f, PMIX_HOSTNAME, own_host);
	check("PMIx_generate_regex", PMIx_generate_regex(hosts, &map));
	PMIX_INFO_LOAD(more(f), PMIX_NODE_MAP, map, PMIX_REGEX);
	check("PMIx_generate_ppn", PMIx_generate_ppn(ranks_of_hosts, &map));
	PMIX_INFO_LOAD(more(f), PMIX_PROC_MAP, map, PMIX_REGEX);
	describe_tasks(f);
}

static void send_variables(uint32_t rank)
{
	pmix_proc_t proc;
	PMIX_LOAD_PROCID(&proc, name_space, rank);
	char **list = NULL;
	check("PMIx_server_setup_fork", PMIx_server_setup_fork(&proc, &list));
	struct buffer b = begin(VARIABLES);
	append_number(&b, rank);
	for (char **v = list; v && *v; v++)
		append(&b, *v, strlen(*v) + 1);
	send_message(&b);
}

static void set_up(char *body)
{
	char *name = word(body, "namespace");
	PMIX_LOAD_NSPACE(name_space, name);
	hosts = word(body, "hosts");
	ranks_of_hosts = word(body, "ranks_of_hosts");
	own_host = word(body, "host");
	base = word(body, "folder");
	size_of_step = number_of(body, "size");
	place = number_of(body, "place");
	char *list = word(body, "ranks");
	for (char *rest = list; rest && *rest;) {
		local_ranks = realloc(local_ranks, (local_count + 1) * sizeof *local_ranks);
		local_ranks[local_count++] = strtoul(strsep(&rest, ","), NULL, 10);
	}
	if (!local_count)
		fail("the setup names no task");
	make_folder();
	atexit(remove_folder);

	struct facts server = { 0 };
	add_text(&server, PMIX_SERVER_TMPDIR, folder);
	add_text(&server, PMIX_SYSTEM_TMPDIR, folder);
	add_text(&server, PMIX_HOSTNAME, own_host);
	check("PMIx_server_init", PMIx_server_init(&host, server.list, server.count));

	struct facts step = { 0 };
	describe_step(&step);
	struct done d = DONE;
	check("PMIx_server_register_nspace",
		await_done(&d, PMIx_server_register_nspace(name_space, local_count, step.list, step.count, finish, &d)));
	for (uint32_t i = 0; i < local_count; i++) {
		pmix_proc_t proc;
		PMIX_LOAD_PROCID(&proc, name_space, local_ranks[i]);
		struct done c = DONE;
		check("PMIx_server_register_client",
			await_done(&c, PMIx_server_register_client(&proc, getuid(), getgid(), NULL, finish, &c)));
	}
	for (uint32_t i = 0; i < local_count; i++)
		send_variables(local_ranks[i]);
	struct buffer b = begin(READY);
	send_message(&b);
	free(list);
	free(name);
}

static int serve(void)
{
	/* The library's other store is memory that it shares with the tasks. There it can
	 * answer that a task of the same node has no such data, while that is just being
	 * committed: seen as MPI_Init that fails where data is exchanged directly. mpi.conf
	 * may choose it nevertheless. */
	setenv("PMIX_MCA_gds", "hash", 0);
	/* What is sent to the whole step is for its tasks. The minder's end is ours. */
	static const int ignored[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE, SIGXCPU,
		SIGTSTP, SIGTTIN, SIGTTOU };
	for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
		signal(ignored[i], SIG_IGN);
	enum kind kind;
	char *body;
	size_t size;
	if (!read_message(&kind, &body, &size) || kind != SETUP)
		return 1;
	set_up(body);
	free(body);
	while (read_message(&kind, &body, &size)) {
		switch (kind) {
		case PASSED:
		case ANSWER:
			answer_waiting(body, size);
			continue;
		case ASK:
			asked(body, size);
			break;
		default:
			break;
		}
		free(body);
	}
	/* The tasks are over, or their minder is: nobody needs an orderly end. */
	remove_folder();
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("muster-pmix: %s\n", PMIx_Get_version());
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		return serve();
	fputs("usage: muster-pmix --version\n\n"
	      "It serves PMIx to the tasks of srun --mpi=pmix; the agent of a node starts it.\n", stderr);
	return 2;
}
