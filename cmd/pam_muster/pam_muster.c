/*
 * pam_muster puts a login on a node into the job of its user there, with the job's
 * private folders. In /etc/pam.d/sshd, behind the other lines of account:
 *
 *   account required pam_muster.so [program=/usr/sbin/muster-agent] [state-dir=DIR]...
 *
 * muster-agent --adopt decides, and moves the process into the job's control groups;
 * pam_exec.so can run that too. Only the process itself can enter the mount namespace
 * of the job, which is what this module is for.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#define PAM_SM_ACCOUNT
#include <security/pam_ext.h>
#include <security/pam_modules.h>

#define MAX_ARGUMENTS 64

static const char adopted_in[] = "namespace ";

/* ask runs muster-agent --adopt for a user, and reads what it says. The result is its
 * exit code, or -1 where it could not be run. */
static int ask(char *const argv[], const char *user, char *said, size_t room)
{
	int ends[2];
	char *variable;
	if (asprintf(&variable, "PAM_USER=%s", user) < 0)
		return -1;
	/* No variable of the login counts: users have a say in those. */
	char *const environment[] = { variable, "PAM_TYPE=account", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	if (pipe2(ends, O_CLOEXEC) != 0) {
		free(variable);
		return -1;
	}
	/* A program that reaps all its children must not take this one's end away. */
	struct sigaction own = { .sa_handler = SIG_DFL }, before;
	sigemptyset(&own.sa_mask);
	sigaction(SIGCHLD, &own, &before);
	pid_t pid = fork();
	if (pid == 0) {
		int nothing = open("/dev/null", O_RDWR);
		if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(ends[1], STDOUT_FILENO) < 0 ||
		    dup2(ends[1], STDERR_FILENO) < 0)
			_exit(127);
		execve(argv[0], argv, environment);
		dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	close(ends[1]);
	size_t size = 0;
	while (pid > 0) {
		char rest[512];
		bool full = size + 1 >= room;
		ssize_t n = read(ends[0], full ? rest : said + size, full ? sizeof rest : room - 1 - size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (!full)
			size += n;
	}
	said[size] = 0;
	close(ends[0]);
	int status = -1;
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) {
			status = -1;
			break;
		}
	sigaction(SIGCHLD, &before, NULL);
	free(variable);
	return pid > 0 && status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* enter brings this process into the mount namespace that is kept at a path. */
static bool enter(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	int rc = setns(fd, CLONE_NEWNS);
	int why = errno;
	close(fd);
	errno = why;
	return rc == 0;
}

int pam_sm_acct_mgmt(pam_handle_t *pam, int flags, int argc, const char **argv)
{
	(void)flags;
	char *command[MAX_ARGUMENTS + 4] = { "/usr/sbin/muster-agent", "--adopt", "--namespace" };
	int count = 3;
	if (argc > MAX_ARGUMENTS / 2) {
		pam_syslog(pam, LOG_ERR, "too many arguments");
		return PAM_SYSTEM_ERR;
	}
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "program=", 8) == 0) {
			command[0] = (char *)argv[i] + 8;
		} else if (strncmp(argv[i], "state-dir=", 10) == 0) {
			command[count++] = "--state-dir";
			command[count++] = (char *)argv[i] + 10;
		} else {
			pam_syslog(pam, LOG_ERR, "unknown argument %s: program= and state-dir= are known", argv[i]);
			return PAM_SYSTEM_ERR;
		}
	}
	command[count] = NULL;
	const char *user = NULL;
	if (pam_get_user(pam, &user, NULL) != PAM_SUCCESS || !user || !*user)
		return PAM_USER_UNKNOWN;
	char said[4096];
	int code = ask(command, user, said, sizeof said);
	said[strcspn(said, "\n")] = 0;
	if (code != 0) {
		pam_syslog(pam, LOG_NOTICE, "login of %s refused: %s", user, said);
		pam_error(pam, "%s", *said ? said : "your login cannot be put into a job on this node");
		return PAM_PERM_DENIED;
	}
	if (strncmp(said, adopted_in, strlen(adopted_in)) != 0)
		return PAM_SUCCESS; /* root, or a job without private folders */
	const char *path = said + strlen(adopted_in);
	if (!enter(path)) {
		pam_syslog(pam, LOG_ERR, "login of %s refused: enter %s: %s", user, path, strerror(errno));
		pam_error(pam, "the private folders of your job cannot be entered");
		return PAM_SYSTEM_ERR;
	}
	return PAM_SUCCESS;
}
