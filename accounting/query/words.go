package query

import "strings"

// beforeBracket are the words of the language behind which a bracket may open.
func beforeBracket() []string {
	return strings.Fields(
		`ALL AND ANTI ANY AS ASC ASOF BETWEEN BY CASE CROSS CUBE DESC DISTINCT ELSE EXCEPT EXISTS FILTER FROM GLOBAL HAVING ILIKE IN
		INNER INTERSECT INTERVAL IS JOIN LEFT LIKE LIMIT NOT OFFSET ON OR OVER PARTITION PREWHERE QUALIFY RANGE ROLLUP ROWS SELECT SEMI SETS THEN UNION USING
		WHEN WHERE WINDOW WITH`,
	)
}

// connectingWords are the other words behind which a value is expected.
func connectingWords() []string {
	return strings.Fields(
		`BOTH COLLATE DIV ESCAPE FETCH FIRST FOR GROUPS LEADING MATCH MOD NEXT REGEXP RLIKE SOME STALENESS TO TOP TRAILING WHEN XOR`,
	)
}

// aggregateFunctions are the aggregate and window functions that are offered.
func aggregateFunctions() []string {
	return strings.Fields(
		`any anylast argmax argmin avg avgweighted corr count covarpop covarsamp dense_rank first_value grouparray groupuniqarray
		kurtpop lag last_value lead laginframe leadinframe max median medianexact min ntile nth_value quantile quantileexact quantileexacthigh
		quantileexactlow quantileexactweighted quantiles quantilesexact quantiletdigest rank row_number simplelinearregression skewpop stddevpop
		stddevsamp stddev_pop stddev_samp sum summap sumwithoverflow topk topkweighted uniq uniqcombined uniqexact uniqhll12 var_pop var_samp varpop varsamp
		nonnegativederivative exponentialmovingaverage entropy histogram deltasum maxmap minmap grouparrayinsertat`,
	)
}

// ordinaryFunctions are the ordinary functions that are offered: those that make a
// value of their arguments, and touch nothing else. None of them tells about
// the server, waits, raises an error on purpose, or reads a file, a table, a
// dictionary or another machine.
//
//muster:table names by what they are about
func ordinaryFunctions() []string {
	return strings.Fields(`
		abs ceil ceiling exp exp2 exp10 floor gcd greatest intdiv intdivorzero lcm least ln log log10 log1p log2 mod modulo moduloorzero negate
		plus minus multiply divide pow power round rounddown roundtoexp2 roundage sign sqrt cbrt trunc truncate isfinite isinfinite isnan
		bitand bitor bitxor bitnot bitshiftleft bitshiftright bitcount bittest width_bucket cos sin tan acos asin atan atan2 degrees radians pi e
		and or xor not if multiif ifnull nullif coalesce isnull isnotnull isnullable assumenotnull tonullable equals notequals less greater lessorequals
		greaterorequals casewithexpression iszeroornull
		tostring toint8 toint16 toint32 toint64 toint128 toint256 touint8 touint16 touint32 touint64 touint128 touint256 tofloat32 tofloat64 todecimal32
		todecimal64 todecimal128 tobool toint8ornull toint16ornull toint32ornull toint64ornull touint8ornull touint16ornull touint32ornull touint64ornull
		tofloat32ornull tofloat64ornull toint64orzero touint64orzero tofloat64orzero cast accuratecast accuratecastornull totypename touuid tolowcardinality
		reinterpretasuint64 tointervalsecond tointervalminute tointervalhour tointervalday tointervalweek tointervalmonth tointervalyear
		now now64 today yesterday todate todate32 todatetime todatetime64 todateornull todatetimeornull todatetime64ornull totime tounixtimestamp
		tounixtimestamp64micro tounixtimestamp64milli fromunixtimestamp fromunixtimestamp64micro fromunixtimestamp64milli toyear toquarter tomonth todayofyear
		todayofmonth todayofweek tohour tominute tosecond tostartofyear tostartofquarter tostartofmonth tostartofweek tomonday tostartofday tostartofhour
		tostartofminute tostartofsecond tostartoffiveminutes tostartoffifteenminutes tostartoftenminutes tostartofinterval toyyyymm toyyyymmdd
		toyyyymmddhhmmss toweek toyearweek timeslot timeslots datediff date_diff dateadd date_add datesub date_sub date_trunc datetrunc datename adddays addhours
		addminutes addmonths addseconds addweeks addyears subtractdays subtracthours subtractminutes subtractmonths subtractseconds subtractweeks subtractyears
		formatdatetime parsedatetime parsedatetimebesteffort parsedatetimebesteffortornull totimezone timezoneoffset year month day hour minute second age
		formatreadablesize formatreadablequantity formatreadabletimedelta formatreadabledecimalsize bar
		length lengthutf8 empty notempty lower upper lowerutf8 upperutf8 reverse concat concatwithseparator concat_ws substring substr mid left right leftpad
		rightpad lpad rpad trim ltrim rtrim trimleft trimright trimboth startswith endswith position locate strpos positioncaseinsensitive
		countsubstrings match extract extractall like notlike ilike replace replaceone replaceall replaceregexpone replaceregexpall splitbychar splitbystring
		splitbyregexp splitbywhitespace arraystringconcat ascii char hex unhex tovalidutf8 substringindex
		array arrayall arrayany arrayavg arrayconcat arraycount arraycumsum arraydifference arraydistinct arrayelement arrayenumerate arrayexists arrayfill
		arrayfilter arrayfirst arrayfirstindex arrayflatten arrayintersect arrayjoin arraylast arraymap arraymax arraymin arraypopback arraypopfront
		arrayproduct arraypushback arraypushfront arrayresize arrayreverse arrayreversesort arrayslice arraysort arraysum arrayuniq arrayzip has hasall hasany
		hassubstr indexof countequal range tuple tupleelement untuple map mapkeys mapvalues mapcontains mapadd mapfilter mapsum
		jsonextract jsonextractstring jsonextractint jsonextractuint jsonextractfloat jsonextractbool jsonextractraw jsonextractkeys jsonhas jsonlength
		cityhash64 siphash64 xxhash64 halfmd5 grouping `)
}
