package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A mistake is a changed line of a file.
type mistake struct {
	file     string
	line     int // from 0
	old, new string
}

func (m mistake) String() string {
	changed := strings.TrimSpace(m.new)
	if changed == "" {
		changed = "(dropped)"
	}
	return fmt.Sprintf("%s:%d\n\t- %s\n\t+ %s", m.file, m.line+1, strings.TrimSpace(m.old), changed)
}

// apply returns the file with the mistake.
func (m mistake) apply() (string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	lines[m.line] = m.new
	return strings.Join(lines, "\n"), nil
}

// mistakesIn lists the mistakes of a file, or of the Go files of a folder.
func mistakesIn(target string) (all []mistake, err error) {
	files := []string{target}
	if info, err := os.Stat(target); err != nil {
		return nil, err
	} else if info.IsDir() {
		if files, err = filepath.Glob(target + "/*.go"); err != nil {
			return nil, err
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_bpfel.go") || strings.HasSuffix(file, ".gen.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, changed := range mistakesOf(line) {
				all = append(all, mistake{file, n, line, changed})
			}
		}
	}
	return all, nil
}

// swaps are operators and plausible wrong ones. Longer ones are first.
func swaps() [][2]string {
	return [][2]string{
		{" <= ", " < "}, {" >= ", " > "}, {" == ", " != "}, {" != ", " == "}, {" < ", " <= "}, {" > ", " >= "},
		{" && ", " || "}, {" || ", " && "}, {" + ", " - "}, {" - ", " + "}, {" += ", " -= "}, {" -= ", " += "},
		{"min(", "max("}, {"max(", "min("}, {"true", "false"}, {"false", "true"},
	}
}

var (
	// a whole statement in one line: a call, an assignment, a step
	statement = regexp.MustCompile(`^\t+(defer )?[*(\w][\w.\[\]>)*(-]*(\(.*\)| [-+|&^]?= [^{]*[^{,(]|\+\+|--);?$`)
	notOne    = regexp.MustCompile(`^\s*(return|if|for|case|else|switch|func|const|var|type)\b`)
	number    = regexp.MustCompile(`\b\d+\b`)
	noCode    = regexp.MustCompile(`^\s*(//|/\*|\*|#include|import|package|_Static_assert)`)
	quoted    = regexp.MustCompile("\"(\\\\.|[^\"\\\\])*\"|`[^`]*`|'(\\\\.|[^'\\\\])*'|//.*|/\\*.*")
)

// mistakesOf lists the changed versions of a line.
func mistakesOf(line string) (changed []string) {
	if noCode.MatchString(line) {
		return nil
	}
	// text and comments keep only their length
	code := quoted.ReplaceAllStringFunc(line, func(s string) string { return strings.Repeat("`", len(s)) })
	for _, s := range swaps() {
		if at := strings.Index(code, s[0]); at >= 0 {
			changed = append(changed, line[:at]+s[1]+line[at+len(s[0]):])
		}
	}
	if at := number.FindStringIndex(code); at != nil {
		if n, err := strconv.ParseUint(code[at[0]:at[1]], 10, 63); err == nil {
			changed = append(changed, line[:at[0]]+strconv.FormatUint(n+1, 10)+line[at[1]:])
		}
	}
	if statement.MatchString(code) && !notOne.MatchString(code) {
		changed = append(changed, "")
	}
	return changed
}
