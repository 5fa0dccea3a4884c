-- Nexmark's queries in StreamRT's SQL. Tables: persons, auctions, bids, and side_input; their times are TIMESTAMP. The answers
-- are those of examples/nexmark.sql, in DuckDB.

-- q0
SELECT auction, bidder, price, date_time, extra FROM bids;

-- q1
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bids;

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
WITH counts AS (
    SELECT auction, window.start AS start, count(*) AS num
    FROM bids
    GROUP BY window(date_time, '10 seconds', '2 seconds'), auction
), most AS (
    SELECT start, max(num) AS num FROM counts GROUP BY start
)
SELECT c.auction, c.num, c.start FROM counts c JOIN most m ON c.start = m.start AND c.num = m.num;

-- q6
WITH winners AS (
    SELECT a.id, a.seller, a.expires, max(b.price) AS price
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.seller, a.expires
)
SELECT seller, id, avg(price) OVER (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price
FROM winners;

-- q7
WITH highest AS (
    SELECT window.start AS start, window.end AS end, max(price) AS price
    FROM bids
    GROUP BY window(date_time, '10 seconds')
)
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bids b JOIN highest h ON b.price = h.price AND b.date_time >= h.start AND b.date_time < h.end;

-- q8
SELECT p.id, p.name, p.start
FROM (
    SELECT id, name, window.start AS start FROM persons GROUP BY id, name, window(date_time, '10 seconds')
) p JOIN (
    SELECT seller, window.start AS start FROM auctions GROUP BY seller, window(date_time, '10 seconds')
) a ON p.id = a.seller AND p.start = a.start;

-- q9
SELECT id, item_name, description, initial_bid, reserve, expires, seller, category, date_time, extra,
    bidder, price, bid_time, bid_extra
FROM (
    SELECT a.*, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra,
        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS number
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) AS ranked
WHERE number <= 1;

-- q10
SELECT auction, bidder, price, date_time, extra,
    date_format(date_time, 'yyyy-MM-dd') AS day, date_format(date_time, 'HH:mm') AS minute
FROM bids;

-- q11
SELECT bidder, count(*) AS bid_count, session_window.start AS start, session_window.end AS end
FROM bids
GROUP BY bidder, session_window(date_time, '10 seconds');

-- q12
SELECT bidder, count(*) AS bid_count, window.start AS start
FROM bids
GROUP BY bidder, window(current_timestamp(), '10 seconds');

-- q13
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bids b JOIN side_input FOR SYSTEM_TIME AS OF b.date_time s ON b.auction % 10000 = s.key;

-- q14
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time_type,
    date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15
SELECT date_format(date_time, 'yyyy-MM-dd') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bids
GROUP BY date_format(date_time, 'yyyy-MM-dd');

-- q16
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day,
    max(date_format(date_time, 'HH:mm')) AS minute,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bids
GROUP BY channel, date_format(date_time, 'yyyy-MM-dd');

-- q17
SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bids
GROUP BY auction, date_format(date_time, 'yyyy-MM-dd');

-- q18
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS number FROM bids
) AS ranked
WHERE number <= 1;

-- q19
SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS rank_number FROM bids
) AS ranked
WHERE rank_number <= 10;

-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.initial_bid, a.seller, a.category
FROM bids b JOIN auctions a ON b.auction = a.id
WHERE a.category = 10;

-- q21
SELECT auction, bidder, price, channel,
    CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bids
WHERE url RLIKE '(&|^)channel_id=([^&]*)' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- q22
SELECT auction, bidder, price, channel,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids;
