package session

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	v1 "loxilb/api/v1"
)

// Version returns a version, or - for none.
func Version(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// Tries returns the number of tries, or - for none.
func Tries(s *v1.Status) string {
	if s.Attempts == 0 {
		return "-"
	}
	return strconv.Itoa(s.Attempts)
}

// Clock returns the time of day, or - for none.
func Clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

// ShortTime returns a local time, without its date if that is today, or - for none.
func ShortTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t = t.Local()
	if now := time.Now(); t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// TimeCell returns a time, or - for none.
func TimeCell(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return Clock(*t)
}

// StatusCell returns a service's status in the data path for a cell.
func StatusCell(s *v1.Status) string {
	switch {
	case s == nil:
		return "-"
	case s.Error != "":
		return s.State + ": " + s.Error
	}
	return s.State
}

// OneLine removes line breaks and control characters from text of endpoints and users.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
}

// Wrap breaks a text after spaces and commas into lines that are at most width wide, if possible.
func Wrap(text string, width int) (lines []string) {
	for utf8.RuneCountInString(text) > width {
		end := 0
		for i, r := range text {
			if next := i + utf8.RuneLen(r); r == ' ' || r == ',' {
				if utf8.RuneCountInString(text[:next]) > width+1 && end > 0 {
					break
				}
				end = next
			}
		}
		if end == 0 || end == len(text) {
			break
		}
		lines, text = append(lines, strings.TrimSpace(text[:end])), text[end:]
	}
	return append(lines, text)
}

// EventLine returns an event in a line.
func EventLine(e *v1.Event) string {
	return fmt.Sprintf("%s  %-9s  %s\n", e.Time.Format(time.RFC3339), e.Kind, e.Message)
}

// Reasons returns the reasons for refusing clients, with their counts.
func Reasons(list []v1.RefusedCount) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = fmt.Sprintf("%s %d", OneLine(one.Reason), one.Count)
	}
	return strings.Join(words, ", ")
}
