package luascript

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Level says how important a line is that a script wrote.
type Level uint8

// The levels.
const (
	LevelUser  Level = iota // for the user who asked
	LevelError              // for the log, as the others
	LevelInfo
	LevelDebug
)

// Line is what a script wrote with one call of slurm.log_* or slurm.user_msg.
type Line struct {
	Level Level
	Text  string
}

// Bounds of what a script writes in one call.
const (
	maxLines    = 100
	maxLineText = 4 << 10
)

func (s *script) addLine(level Level, text string) {
	if len(s.said) >= maxLines {
		return
	}
	if len(text) > maxLineText {
		text = text[:maxLineText] + "..."
	}
	s.said = append(s.said, Line{level, text})
}

// takeSaid gives what was said since the last time.
func (s *script) takeSaid() []Line {
	lines := s.said
	s.said = nil
	return lines
}

// Values that stand for no value, and for no limit, in the fields of job_desc.
const (
	noVal8     = 0xfe
	noVal16    = 0xfffe
	noVal      = 0xfffffffe
	infinite16 = 0xffff
	infinite   = 0xffffffff
	niceOffset = 0x80000000
)

// Unset and unlimited values of 64 bits. A Lua number holds the nearest one that it can, on
// both sides of a comparison.
var (
	noVal64    = lua.LNumber(float64(0xfffffffffffffffe))
	infinite64 = lua.LNumber(float64(0xffffffffffffffff))
	memPerCPU  = lua.LNumber(float64(0x8000000000000000))
)

// constants are the numbers of the table slurm.
//
//muster:table one row for each name
func constants() map[string]lua.LNumber {
	return map[string]lua.LNumber{
		"SUCCESS": 0, "ERROR": -1, "FAILURE": -1,
		"NO_VAL": noVal, "NO_VAL8": noVal8, "NO_VAL16": noVal16, "NO_VAL64": noVal64,
		"INFINITE": infinite, "INFINITE16": infinite16, "INFINITE64": infinite64,
		"MEM_PER_CPU": memPerCPU, "NICE_OFFSET": niceOffset,
		"JOB_SHARED_NONE": 0, "JOB_SHARED_OK": 1, "JOB_SHARED_USER": 2, "JOB_SHARED_MCS": 3, "JOB_SHARED_TOPO": 4,
		"MAIL_JOB_BEGIN": mailBegin, "MAIL_JOB_END": mailEnd, "MAIL_JOB_FAIL": mailFail, "MAIL_JOB_REQUEUE": mailRequeue,
		"MAIL_JOB_TIME100": mailTime100, "MAIL_JOB_TIME90": mailTime90, "MAIL_JOB_TIME80": mailTime80, "MAIL_JOB_TIME50": mailTime50,
		"MAIL_JOB_STAGE_OUT": mailStageOut, "MAIL_ARRAY_TASKS": mailArrayTasks, "MAIL_INVALID_DEPEND": mailInvalidDepend,
		"OPEN_MODE_APPEND": openAppend, "OPEN_MODE_TRUNCATE": openTruncate,
		"ESLURM_INVALID_PARTITION_NAME": 2000, "ESLURM_DEFAULT_PARTITION_NOT_SET": 2001, "ESLURM_ACCESS_DENIED": 2002,
		"ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP": 2003, "ESLURM_REQUESTED_NODES_NOT_IN_PARTITION": 2004,
		"ESLURM_TOO_MANY_REQUESTED_CPUS": 2005, "ESLURM_INVALID_NODE_COUNT": 2006, "ESLURM_JOB_SCRIPT_MISSING": 2009,
		"ESLURM_USER_ID_MISSING": 2010, "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE": 2014,
		"ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE": 2015, "ESLURM_NODES_BUSY": 2016, "ESLURM_INVALID_JOB_ID": 2017,
		"ESLURM_INVALID_NODE_NAME": 2018, "ESLURM_INVALID_FEATURE": 2029, "ESLURM_DISABLED": 2037, "ESLURM_DEPENDENCY": 2038,
		"ESLURM_BATCH_ONLY": 2039, "ESLURM_JOB_HELD": 2042, "ESLURM_INVALID_TASK_MEMORY": 2044, "ESLURM_INVALID_ACCOUNT": 2045,
		"ESLURM_INVALID_LICENSES": 2048, "ESLURM_ACCOUNTING_POLICY": 2050, "ESLURM_INVALID_TIME_LIMIT": 2051,
		"ESLURM_MISSING_TIME_LIMIT": 2051, "ESLURM_RESERVATION_ACCESS": 2052, "ESLURM_RESERVATION_INVALID": 2053,
		"ESLURM_INVALID_TIME_VALUE": 2054, "ESLURM_INVALID_WCKEY": 2057, "ESLURM_INVALID_QOS": 2066,
		"ESLURM_NODE_NOT_AVAIL": 2068, "ESLURM_INVALID_CPU_COUNT": 2069, "ESLURM_PARTITION_NOT_AVAIL": 2070,
		"ESLURM_INVALID_GRES": 2072, "ESLURM_QOS_THRES": 2074, "ESLURM_CAN_NOT_START_IMMEDIATELY": 2078,
		"ESLURM_INVALID_ARRAY": 2081,
	}
}

// addSlurm makes the global table slurm. Reading what it has not is an error.
func (s *script) addSlurm() {
	table := s.state.NewTable()
	for name, n := range constants() {
		table.RawSetString(name, n)
	}
	for name, level := range map[string]Level{
		"log_error": LevelError, "log_info": LevelInfo, "log_verbose": LevelDebug,
		"log_debug": LevelDebug, "log_debug2": LevelDebug, "log_debug3": LevelDebug, "log_debug4": LevelDebug,
		"log_user": LevelUser, "user_msg": LevelUser,
	} {
		table.RawSetString(name, s.state.NewFunction(func(l *lua.LState) int {
			text, err := s.formatted(l)
			if err != nil {
				l.RaiseError("slurm.%s: %s", name, err)
			}
			s.addLine(level, text)
			return 0
		}))
	}
	s.state.SetGlobal("slurm", s.makeStrict(table, "slurm"))
}

// formatted is the text of a call in the way of string.format. In a text alone %% is %, and
// a lone % is not an error.
func (s *script) formatted(l *lua.LState) (string, error) {
	if l.GetTop() <= 1 {
		text := lua.LVAsString(l.ToStringMeta(l.Get(1)))
		return strings.ReplaceAll(text, "%%", "%"), nil
	}
	library, ok := l.GetGlobal(lua.StringLibName).(*lua.LTable)
	if !ok {
		return "", fmt.Errorf("the script replaced %q", lua.StringLibName)
	}
	args := make([]lua.LValue, l.GetTop())
	for i := range args {
		args[i] = l.Get(i + 1)
	}
	err := l.CallByParam(lua.P{Fn: library.RawGetString("format"), NRet: 1, Protect: true}, args...)
	if err != nil {
		return "", err
	}
	text := l.ToString(-1)
	l.Pop(1)
	return text, nil
}
