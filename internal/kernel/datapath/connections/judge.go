package connections

import (
	"fmt"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
)

// judgeSamples is the program that judges watched connections.
const judgeSamples = "loxilb_judge"

// judgedEndpoints has a bit for each endpoint.
type judgedEndpoints [bpf.TcSampleLayoutOUTCOME_ROWS / 64]uint64

// JudgeConnections judges watched connections (bpf/open/judge.h). It marks the services of judged
// endpoints as changed.
func (t *Table) JudgeConnections() error {
	t.judging.Lock()
	defer t.judging.Unlock()
	if _, err := t.runMarked(judgeSamples, 0); err != nil {
		return fmt.Errorf("judge connections: %w", err)
	}
	var judged judgedEndpoints
	if err := t.programs.judged.Get(&judged); err != nil {
		return fmt.Errorf("read the judged endpoints: %w", err)
	}
	if !slices.ContainsFunc(judged[:], func(word uint64) bool { return word != 0 }) {
		return nil
	}
	t.tables.MarkJudged(judged[:])
	if err := t.programs.judged.Set(judgedEndpoints{}); err != nil {
		return fmt.Errorf("clear the judged endpoints: %w", err)
	}
	return nil
}
