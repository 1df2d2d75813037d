// Image makes the container image of kube-loxilb, for the architecture of this machine.
package main

import (
	"flag"
	"fmt"
	"os"

	"loxilb/kube/test/rig"
)

func main() {
	program := flag.String("program", "", "kube-loxilb")
	name := flag.String("name", "", "of the image")
	out := flag.String("out", "", "archive to write, which docker load and ctr import read")
	flag.Parse()
	if err := rig.WriteImages(*out, rig.Image{Name: *name, Program: *program}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(*name)
}
