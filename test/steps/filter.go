package steps

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stepCalls returns the system calls that are steps: their effects outlive the process or are
// visible to others. A kill at any point between two steps leaves the same state.
func stepCalls() map[uint32]string {
	return map[uint32]string{
		unix.SYS_PWRITE64: "pwrite64", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FTRUNCATE: "ftruncate",
		unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat", unix.SYS_UNLINKAT: "unlinkat",
		unix.SYS_MKDIRAT: "mkdirat", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_MOUNT: "mount",
	}
}

// stepCommands returns the commands of bpf(2) that are steps. Creating a map or program is no step:
// without a pin, it ends with the process.
func stepCommands() map[uint32]string {
	return map[uint32]string{unix.BPF_MAP_UPDATE_ELEM: "MAP_UPDATE_ELEM", unix.BPF_MAP_DELETE_ELEM: "MAP_DELETE_ELEM",
		unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM:  "MAP_LOOKUP_AND_DELETE_ELEM",
		unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH: "MAP_LOOKUP_AND_DELETE_BATCH", unix.BPF_MAP_UPDATE_BATCH: "MAP_UPDATE_BATCH",
		unix.BPF_MAP_DELETE_BATCH: "MAP_DELETE_BATCH", unix.BPF_OBJ_PIN: "OBJ_PIN",
		unix.BPF_PROG_ATTACH: "PROG_ATTACH", unix.BPF_PROG_DETACH: "PROG_DETACH", unix.BPF_PROG_RUN: "PROG_RUN",
		unix.BPF_LINK_CREATE: "LINK_CREATE", unix.BPF_LINK_UPDATE: "LINK_UPDATE", unix.BPF_LINK_DETACH: "LINK_DETACH",
	}
}

// Offsets in struct seccomp_data: the number of the call, and the lower half of its first argument.
const (
	offsetNumber   = 0
	offsetArgument = 16
)

// filter stops each step, and allows all other calls. A write to standard output or error is no
// step.
func filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	end := func(action uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET, K: action} }
	jumpUnless := func(test uint16, value uint32, otherwise int) unix.SockFilter { // continues if the test holds
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jf: uint8(otherwise)}
	}
	stop, pass := end(unix.SECCOMP_RET_USER_NOTIF), end(unix.SECCOMP_RET_ALLOW)

	program := []unix.SockFilter{load(offsetNumber)}
	for number := range stepCalls() {
		program = append(program, jumpUnless(unix.BPF_JEQ, number, 1), stop)
	}
	program = append(program, jumpUnless(unix.BPF_JEQ, unix.SYS_WRITE, 4), load(offsetArgument), jumpUnless(unix.BPF_JGT, uint32(unix.Stderr), 1), stop, pass)
	program = append(program, jumpUnless(unix.BPF_JEQ, unix.SYS_BPF, 2*len(stepCommands())+1), load(offsetArgument))
	for command := range stepCommands() {
		program = append(program, jumpUnless(unix.BPF_JEQ, command, 1), stop)
	}
	return append(program, pass)
}

// install adds the filter to the calling thread, and returns the file that reports its steps. Exec
// closes the file.
func install() (int, error) {
	program := filter()
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return 0, fmt.Errorf("filter system calls: %w", errno)
	}
	return int(fd), nil
}
