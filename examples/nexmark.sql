-- The answers of Nexmark's queries over all events, in DuckDB's SQL: what examples/nexmark.py has put out when time has ended.
-- Tables: persons, auctions, bids, and side_input. Times are milliseconds; no two events have the same. When a bid has
-- arrived, only q12 asks: it is by the wall clock.

-- q0
SELECT auction, bidder, price, date_time, extra FROM bids;

-- q1
SELECT auction, bidder, 0.908::DOUBLE * price AS price, date_time, extra FROM bids;

-- q2
SELECT auction, price FROM bids WHERE auction % 123 = 0;

-- q3
SELECT p.name, p.city, p.state, a.id
FROM auctions a JOIN persons p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4
WITH finals AS (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
)
SELECT category, avg(final) AS average FROM finals GROUP BY category;

-- q5
WITH starts AS (
    SELECT auction, unnest(range(date_time // 2000 * 2000 - 8000, date_time + 1, 2000)) AS start FROM bids
), counts AS (
    SELECT auction, start, count(*) AS num FROM starts GROUP BY auction, start
)
SELECT auction, num, start FROM counts QUALIFY rank() OVER (PARTITION BY start ORDER BY num DESC) = 1;

-- q6
WITH winners AS (
    SELECT a.id, a.seller, a.expires, max(b.price) AS price
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.seller, a.expires
)
SELECT seller, id, avg(price) OVER (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price
FROM winners;

-- q7
SELECT auction, price, bidder, date_time, extra
FROM bids QUALIFY rank() OVER (PARTITION BY date_time // 10000 ORDER BY price DESC) = 1;

-- q8
SELECT DISTINCT p.id, p.name, p.date_time // 10000 * 10000 AS start
FROM persons p JOIN auctions a ON p.id = a.seller AND p.date_time // 10000 = a.date_time // 10000;

-- q9
SELECT a.*, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra
FROM auctions a JOIN bids b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) = 1;

-- q10
SELECT auction, bidder, price, date_time, extra,
    strftime(make_timestamp_ms(date_time), '%Y-%m-%d') AS day, strftime(make_timestamp_ms(date_time), '%H:%M') AS minute
FROM bids;

-- q11
WITH firsts AS (
    SELECT bidder, date_time, coalesce(date_time - lag(date_time) OVER w > 10000, true)::INT AS opens
    FROM bids WINDOW w AS (PARTITION BY bidder ORDER BY date_time)
), sessions AS (
    SELECT bidder, date_time, sum(opens) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM firsts
)
SELECT bidder, count(*) AS bid_count, min(date_time) AS start, max(date_time) + 10000 AS "end"
FROM sessions GROUP BY bidder, session;

-- q12
SELECT bidder, count(*) AS bid_count, arrived // 10000 * 10000 AS start FROM bids GROUP BY bidder, start;

-- q13
SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bids b JOIN side_input s ON b.auction % 10000 = s.key;

-- q14
WITH euros AS (
    SELECT *, 0.908::DOUBLE * price AS euro, hour(make_timestamp_ms(date_time)) AS hour FROM bids
)
SELECT auction, bidder, euro AS price,
    CASE WHEN hour BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour <= 6 OR hour >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type,
    date_time, extra, len(extra) - len(replace(extra, 'c', '')) AS c_counts
FROM euros WHERE euro > 1000000 AND euro < 50000000;

-- q15
SELECT strftime(make_timestamp_ms(date_time), '%Y-%m-%d') AS day,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids GROUP BY day;

-- q16
SELECT channel, strftime(make_timestamp_ms(date_time), '%Y-%m-%d') AS day,
    max(strftime(make_timestamp_ms(date_time), '%H:%M')) AS minute,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids GROUP BY channel, day;

-- q17
SELECT auction, strftime(make_timestamp_ms(date_time), '%Y-%m-%d') AS day,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bids GROUP BY auction, day;

-- q18
SELECT auction, bidder, price, channel, url, date_time, extra
FROM bids QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1;

-- q19
SELECT auction, bidder, price, channel, url, date_time, extra,
    row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS rank_number
FROM bids QUALIFY rank_number <= 10;

-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.initial_bid, a.seller, a.category
FROM bids b JOIN auctions a ON b.auction = a.id
WHERE a.category = 10;

-- q21
SELECT auction, bidder, price, channel,
    CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bids
WHERE regexp_matches(url, '(&|^)channel_id=([^&]*)') OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- q22
SELECT auction, bidder, price, channel,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids;
