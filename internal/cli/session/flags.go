package session

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// AtLeast returns an error if the number of a flag is less than least.
func AtLeast(least int, flag string, n int) error {
	if n < least {
		return fmt.Errorf("--%s %d is out of range (allowed: %d or more)", flag, n, least)
	}
	return nil
}

// durationType is the type of a duration flag in the help.
const durationType = "duration"

// durationFlag is a time.Duration that also accepts a number of seconds, like the existing loxicmd.
type durationFlag time.Duration

// DurationVar defines a flag that accepts 60, 60s and 1m.
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

// Type returns the type of the value in the help.
func (d *durationFlag) Type() string { return durationType }
