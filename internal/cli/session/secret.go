package session

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
)

// ReadSecret returns the first line of a file; - is standard input.
func (o *Options) ReadSecret(path string) (string, error) {
	in := o.Env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close() //nolint:errcheck // it is only read
		in = f
	}
	line, err := bufio.NewReader(io.LimitReader(in, 64<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("its first line is empty")
	}
	return line, nil
}
