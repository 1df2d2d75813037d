// Command loxicmd is the command line of loxilb.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/internal/host/build"
)

// version, and commit and date of the commit, are set by the linker.
var version, commit, date = "dev", "", ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	env := session.Env{Build: build.Of(version, commit, date), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	code := cli.Main(ctx, env, os.Args[1:])
	stop()
	os.Exit(code)
}
