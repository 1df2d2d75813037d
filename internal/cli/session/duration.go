package session

import (
	"time"

	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// durationType is what help calls the value of a duration flag.
const durationType = "duration"

// durationFlag is a time.Duration that may be written as a number of seconds, as the contract has
// it.
type durationFlag time.Duration

// DurationVar defines a flag that takes 60, 60s and 1m.
func DurationVar(fs *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, help string) {
	*d = value
	fs.VarP((*durationFlag)(d), name, short, help)
}

// Set reads the value.
func (d *durationFlag) Set(text string) error {
	v, err := lb.ParseDuration(text)
	if err == nil {
		*d = durationFlag(v)
	}
	return err
}

func (d *durationFlag) String() string {
	if *d == 0 {
		return "0s"
	}
	return time.Duration(*d).String()
}

// Type is the name of the value in the help.
func (d *durationFlag) Type() string { return durationType }
