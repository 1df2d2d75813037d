// Command loxicmd is the command line of loxilb.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	env := session.Env{Version: version, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	code := cli.Main(ctx, env, os.Args[1:])
	stop()
	os.Exit(code)
}
