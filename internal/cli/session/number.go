package session

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError says in words what is wrong with a flag's number.
func FlagError(_ *cobra.Command, err error) error {
	var (
		flag   *pflag.InvalidValueError
		number *strconv.NumError
	)
	if !errors.As(err, &flag) || !errors.As(err, &number) {
		return err
	}
	what := "is not a whole number"
	if errors.Is(number, strconv.ErrRange) {
		what = "is out of range"
	}
	return fmt.Errorf("--%s %q %s", flag.GetFlag().Name, flag.GetValue(), what)
}

// AtLeast refuses the number of a flag that is less than it may be.
func AtLeast(least int, flag string, n int) error {
	if n < least {
		return fmt.Errorf("--%s %d is out of range (allowed: %d or more)", flag, n, least)
	}
	return nil
}
