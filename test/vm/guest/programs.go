package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runProgram is what the jobs run: `guest PROGRAM ARGUMENT...`. It returns the
// exit code.
func runProgram(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "guest: name a program: hog, forks, escape, open, sleep, join")
		return 2
	}
	argument := func(at int) string {
		if at < len(args) {
			return args[at]
		}
		return ""
	}
	number, _ := strconv.Atoi(argument(1))
	switch args[0] {
	case "prove":
		return runProofs()
	case "hog":
		return touchMemory(number)
	case "forks":
		return forkSleepers(number)
	case "bomb":
		return forkBomb()
	case "escape":
		return escape(argument(1))
	case "open":
		return openDevices(args[1:])
	case "join":
		return joinAndRun(argument(1), args[2:])
	case "sleep":
		time.Sleep(time.Duration(number) * time.Second)
		return 0
	}
	fmt.Fprintf(os.Stderr, "guest: unknown program %q\n", args[0])
	return 2
}

// touchMemory uses so many MiB and ends well.
func touchMemory(mebibytes int) int {
	memory := make([]byte, mebibytes<<20)
	for at := 0; at < len(memory); at += os.Getpagesize() {
		memory[at] = 1
	}
	fmt.Println("touched", len(memory)>>20)
	return 0
}

// forkSleepers starts so many processes and ends them again.
func forkSleepers(count int) int {
	var started []*exec.Cmd
	defer func() {
		for _, cmd := range started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	for range count {
		cmd := exec.Command("/bin/busybox", "sleep", "600")
		if err := cmd.Start(); err != nil {
			fmt.Println("forked", len(started), err)
			return 1
		}
		started = append(started, cmd)
	}
	fmt.Println("forked", len(started))
	return 0
}

// forkBomb multiplies until it is killed, each process in a session of its own.
func forkBomb() int {
	for {
		cmd := exec.Command("/init", "bomb")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Start() != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// escape leaves a sleeper behind that has left its parent, its session and, for
// "namespace", its user and process namespaces.
func escape(how string) int {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if how == "namespace" {
		attributes.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	cmd := exec.Command("/init", "sleep", "987654")
	if how == "double fork" {
		cmd = exec.Command(
			"/bin/sh",
			"-c",
			"/bin/busybox setsid /init sleep 987654 </dev/null >/dev/null 2>&1 &",
		)
	}
	cmd.SysProcAttr = attributes
	if err := cmd.Start(); err != nil {
		fmt.Println("escape:", err)
		return 1
	}
	if how == "double fork" {
		_ = cmd.Wait()
	}
	time.Sleep(300 * time.Millisecond) // the sleeper must be there when the job ends
	return 0
}

// openDevices says of each file how opening it ends.
func openDevices(paths []string) int {
	var results []string
	for _, path := range paths {
		file, err := os.Open(path)
		var errno unix.Errno
		switch {
		case err == nil:
			_ = file.Close()
			results = append(results, "opened")
		case errors.As(err, &errno):
			results = append(results, unix.ErrnoName(errno))
		default:
			results = append(results, err.Error())
		}
	}
	fmt.Println("open:", strings.Join(results, " "))
	return 0
}

// joinAndRun enters a control group and becomes another program there, which is
// how a service manager starts a service.
func joinAndRun(group string, command []string) int {
	if err := os.WriteFile(group+"/cgroup.procs", []byte("0"), 0); err != nil {
		fmt.Fprintln(os.Stderr, "join:", err)
		return 1
	}
	if err := unix.Exec(command[0], command, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "exec:", err)
	}
	return 1
}
